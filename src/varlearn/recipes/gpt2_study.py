"""Figure 2: GPT-2's training loss, low precision, and perplexity against the number of posterior samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from varlearn.files.checked_json import read_json_lines
from varlearn.recipes.pretraining import language
from varlearn.recipes.scales import Scale
from varlearn.recipes.study import Measured, Study, Values, by_line, mean_of, table_of
from varlearn.recipes.study_sheet import Sheet
from varlearn.recipes.tables import Line
from varlearn.train import RunFolder, load_run_predictions

SMALL_ESS = 1_000_000.0  # of the third panel; the bytes of the Brown corpus are 6 million
NEEDS = (
    "The paper's: GPT-2 of 125M on OpenWebText, 100,000 steps on 8 GPUs (15 hours of AdamW), from openwebtext.txt. The "
    "small scale takes 3M parameters on the Brown corpus, 1,000 steps. There panel (c) has a separate run with "
    "lambda 10^6: with the paper's 10^10 all samples are nearly the mean, and averaging cannot matter."
)


def figure2(scale: Scale) -> Study:
    """AdamW and IVON in float32 and in bfloat16, and IVON with a posterior wide enough to average over."""
    lines = []
    for method in ("adamw", "ivon"):
        run = language("125m", method, scale)
        for precision in ("fp32", "bf16"):
            changes = {} if run.train.precision == precision else {"train": {"precision": precision}}
            one = replace(run, train=replace(run.train, precision=precision))
            lines.append(Line(run.data.name, run.model.name, method, precision, one, changes, (), {}))
    if scale == "small":
        run = language("125m", "ivon", scale)
        wide = replace(run, optim=replace(run.optim, ess=SMALL_ESS))
        changes = {"optim": {"ess": SMALL_ESS}}
        lines.append(Line(run.data.name, run.model.name, "ivon", f"ess {SMALL_ESS:.0e}", wide, changes, (), {}))
    title = "Figure 2: GPT-2, training loss, low precision, samples"
    return Study(table_of("figure2", title, lines), measure, sheet, draw, NEEDS, "figure1")


def measure(folder: Path) -> Values:
    """Training loss by step, and test perplexity of the average over the first s samples, and at the mean."""
    records = read_json_lines(RunFolder(folder).log).records
    losses = [[line["step"], line["loss"]] for line in records if "loss" in line]
    test = load_run_predictions(folder)["test"]
    curve = test["averaged"].nll_by_samples
    perplexities = [math.exp(value) for value in curve.tolist()] if curve is not None else []
    mean = math.exp(-test["mean"].log_probs.double().mean().item())
    return {"losses": losses, "perplexity_by_samples": perplexities, "perplexity_at_mean": mean}


def sheet(found: Sequence[Measured]) -> Sheet:
    """The training loss over the last tenth of the steps, and perplexities."""
    rows = []
    for name, group in by_line(found).items():
        last = [[loss for _, loss in one.values["losses"][-max(1, len(one.values["losses"]) // 10) :]] for one in group]
        by_samples = [one.values["perplexity_by_samples"] for one in group]
        at_mean = [one.values["perplexity_at_mean"] for one in group]
        cells = [f"{mean_of([mean_of(one) for one in last]):.4f}", f"{mean_of(at_mean):.3f}"]
        count = len(by_samples[0])
        shown = [number for number in (1, 2, 4, 8, 16) if number <= count]
        averaged = ", ".join(f"{number}: {mean_of([one[number - 1] for one in by_samples]):.3f}" for number in shown)
        rows.append([name, f"n = {len(group)}", averaged if count > 1 else "", *cells])
    columns = ["method", "", "perplexity by samples", "training loss, last tenth", "perplexity at the mean"]
    return Sheet("Training loss and perplexity", columns, rows, 2)


def draw(found: Sequence[Measured], folder: Path) -> Sequence[Path]:
    """The three panels."""
    from varlearn.report.panel_figures import grid_of_lines
    from varlearn.report.style import save

    groups = by_line(found)

    def losses(names: Sequence[str]) -> dict[str, list[tuple[float, float]]]:
        return {name: [(step, loss) for step, loss in groups[name][0].values["losses"]] for name in names}

    averaged = {
        name: [(number, value) for number, value in enumerate(group[0].values["perplexity_by_samples"], 1)]
        for name, group in groups.items()
        if len(group[0].values["perplexity_by_samples"]) > 1
    }
    panels = {
        ("training loss", "step"): losses([name for name in groups if "bf16" not in name]),
        ("training loss, bfloat16", "step"): losses([name for name in groups if "bf16" in name]),
        ("perplexity", "posterior samples"): averaged,
    }
    return save(grid_of_lines(panels, columns=3), folder / "figure2")
