"""Figure 4: more Monte-Carlo samples, at test time and in training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from varlearn.metrics import accuracy, nll
from varlearn.prediction import log_average
from varlearn.recipes.bayesian_comparison import comparison
from varlearn.recipes.scales import Scale
from varlearn.recipes.study import Measured, Study, Values, by_line, mean_of, table_of
from varlearn.recipes.study_sheet import Sheet
from varlearn.recipes.tables import Line
from varlearn.train.loaded_run import load_run

TEST_SAMPLES = {"paper": 512, "small": 64}
TRAIN_SAMPLES = {"paper": (1, 2, 4, 8, 16, 32), "small": (1, 2, 4)}
NEEDS = (
    "The paper's: ResNet-20 trained with 1, 2, 4, 8, 16 and 32 samples, 63 times the passes of one run, and 1 to 512 "
    "samples at test time. The small scale trains with 1, 2 and 4, and tests with 1 to 64."
)


def samples(scale: Scale) -> Study:
    """The study of Figure 4: runs of IVON that differ in `optim.samples`."""
    lines = []
    for count in TRAIN_SAMPLES[scale]:
        run = comparison("ivon", scale)
        changes = {} if count == 1 else {"optim": {"samples": count}}
        run = replace(run, optim=replace(run.optim, samples=count))
        detail = f"trained with {count}"
        lines.append(Line("cifar10", run.model.name, "ivon", detail, run, changes, (), {}))
    title = "Figure 4: samples at test time and in training"
    return Study(table_of("samples", title, lines), measure, sheet, draw, NEEDS, "comparison")


def measure(folder: Path, most: int | None = None) -> Values:
    """Accuracy and NLL of the average over 1, 2, 4, ... samples; each number extends the one before.

    Args:
        folder: of a finished run.
        most: samples; None for 64 at the small scale and 512 at the paper's.
    """
    run = load_run(folder)
    most = most or TEST_SAMPLES[run.run.scale]
    each = run.each_sample(run.test, most)
    targets = run.test.targets
    rows, running, count = [], None, 0
    while count < len(each):
        more = max(1, count)
        part = log_average(each[count : count + more])
        done = min(count + more, len(each))
        share = torch.tensor([count, done - count], dtype=torch.float64).div(done).log()
        running = part if running is None else log_average(torch.stack([running, part]), share)
        count = done
        rows.append({"samples": count, "accuracy": accuracy(running, targets), "nll": nll(running, targets)})
    at_mean = run.predict(run.test, 1, "mean").log_probs
    mean = {"accuracy": accuracy(at_mean, targets), "nll": nll(at_mean, targets)}
    return {"images": len(run.test), "trained_with": run.run.optim.samples, "mean": mean, "rows": rows}


def sheet(found: Sequence[Measured]) -> Sheet:
    """A row for each number of samples; the first is the mean of the posterior, 0 samples."""
    rows = []
    for name, group in by_line(found).items():
        counts = [row["samples"] for row in group[0].values["rows"]]
        about = f"n = {len(group)}, {group[0].values['images']:,} images"
        at_mean = [f"{mean_of([one.values['mean'][key] for one in group]):.4f}" for key in ("accuracy", "nll")]
        rows.append([name, about, "mean", *at_mean])
        for place, count in enumerate(counts):
            cells = [f"{mean_of([one.values['rows'][place][key] for one in group]):.4f}" for key in ("accuracy", "nll")]
            rows.append(["", "", str(count), *cells])
    return Sheet("Accuracy and NLL by samples", ["runs", "", "test samples", "accuracy", "NLL"], rows, 3)


def draw(found: Sequence[Measured], folder: Path) -> Sequence[Path]:
    """Accuracy and NLL against test samples above, against training samples below."""
    from varlearn.report.panel_figures import grid_of_lines
    from varlearn.report.style import save

    panels = {}
    for key, title in (("accuracy", "accuracy"), ("nll", "NLL")):
        panels[title, "samples at test time"] = {
            name: [
                (row["samples"], mean_of([one.values["rows"][place][key] for one in group]))
                for place, row in enumerate(group[0].values["rows"])
            ]
            for name, group in by_line(found).items()
        }
    for key, title in (("accuracy", "accuracy"), ("nll", "NLL")):
        panels[title, "samples in training"] = {
            "IVON": sorted(
                (group[0].values["trained_with"], mean_of([one.values["rows"][-1][key] for one in group]))
                for group in by_line(found).values()
            )
        }
    return save(grid_of_lines(panels, columns=2), folder / "samples")
