"""Figures 1b and 1c: accuracy while training, and calibration, of the image networks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from varlearn.files.checked_json import read_json_lines
from varlearn.metrics import ece, reliability_curve
from varlearn.recipes.images import image
from varlearn.recipes.scales import Scale
from varlearn.recipes.study import Measured, Study, Values, by_line, mean_of, table_of
from varlearn.recipes.study_sheet import Sheet
from varlearn.recipes.tables import Line
from varlearn.train import RunFolder, load_run_predictions

METHODS = ("adamw", "sgd", "ivon")
BINS = 20
NEEDS = (
    "The paper's: ResNet-50 on ImageNet, 200 epochs on 8 GPUs, from ImageNet's files in VARLEARN_DATA. The small scale "
    "takes ResNet-20 on 10,000 images of CIFAR-10, with the runs of varlearn reproduce table1."
)


def figure1b(scale: Scale) -> Study:
    """Accuracy at the mean after each epoch."""
    title = "Figure 1b: accuracy while training"
    return Study(table_of("figure1b", title, _lines(scale)), accuracy_by_epoch, _epochs, _draw_epochs, NEEDS, "table1")


def figure1c(scale: Scale) -> Study:
    """Accuracy against confidence."""
    title = "Figure 1c: calibration"
    return Study(table_of("figure1c", title, _lines(scale)), calibration, _bins, _draw_bins, NEEDS, "table1")


def _lines(scale: Scale) -> list[Line]:
    data, model = ("imagenet", "resnet50") if scale == "paper" else ("cifar10", "resnet20")
    return [Line(data, model, method, "", image(data, model, method, scale), {}, (), {}) for method in METHODS]


def accuracy_by_epoch(folder: Path) -> Values:
    """What the log holds: epoch, accuracy and NLL at the mean."""
    records = read_json_lines(RunFolder(folder).log).records
    rows = [
        {"epoch": line["epoch"], "accuracy": line["eval"]["accuracy"], "nll": line["eval"]["nll"]}
        for line in records
        if "eval" in line
    ]
    return {"rows": rows}


def calibration(folder: Path) -> Values:
    """Reliability curve and ECE with 20 bins, of the averaged predictions."""
    found = load_run_predictions(folder)["test"]["averaged"]
    curve = reliability_curve(found.log_probs, found.targets, BINS)
    return {
        "ece": ece(found.log_probs, found.targets, BINS),
        "bins": BINS,
        "count": curve.count.tolist(),
        "confidence": curve.confidence.nan_to_num().tolist(),
        "accuracy": curve.accuracy.nan_to_num().tolist(),
    }


def _epochs(found: Sequence[Measured]) -> Sheet:
    rows = []
    for name, group in by_line(found).items():
        last = [one.values["rows"][-1] for one in group]
        best = [max(row["accuracy"] for row in one.values["rows"]) for one in group]
        cells = [f"{mean_of([row[key] for row in last]):.4f}" for key in ("accuracy", "nll")]
        rows.append([name, f"n = {len(group)}", *cells, f"{mean_of(best):.4f}"])
    return Sheet("At the last epoch", ["method", "", "accuracy", "NLL", "best accuracy of any epoch"], rows, 3)


def _draw_epochs(found: Sequence[Measured], folder: Path) -> Sequence[Path]:
    from varlearn.report.panel_figures import grid_of_lines
    from varlearn.report.style import save

    panels = {
        (key, "epoch"): {
            name: [
                (row["epoch"], mean_of([one.values["rows"][place][key] for one in group]))
                for place, row in enumerate(group[0].values["rows"])
            ]
            for name, group in by_line(found).items()
        }
        for key in ("accuracy", "nll")
    }
    return save(grid_of_lines(panels, columns=2), folder / "figure1b")


def _bins(found: Sequence[Measured]) -> Sheet:
    rows = []
    for name, group in by_line(found).items():
        gaps = [_gap(one.values) for one in group]
        ece_cell = f"{mean_of([one.values['ece'] for one in group]):.4f}"
        rows.append([name, f"n = {len(group)}", ece_cell, f"{mean_of(gaps):+.4f}"])
    return Sheet("Calibration", ["method", "", f"ECE, {BINS} bins", "confidence less accuracy"], rows, 2)


def _gap(values: Values) -> float:
    """Mean confidence less accuracy: above 0 for a model that is too sure."""
    count = torch.tensor(values["count"], dtype=torch.float64)
    gap = torch.tensor(values["confidence"], dtype=torch.float64) - torch.tensor(values["accuracy"])
    return float((count * gap).sum() / count.sum())


def _draw_bins(found: Sequence[Measured], folder: Path) -> Sequence[Path]:
    from varlearn.report.panel_figures import grid_of_lines
    from varlearn.report.style import save

    lines = {"perfect": [(0.0, 0.0), (1.0, 1.0)]}
    for name, group in by_line(found).items():
        count, sure, right = (
            torch.stack([torch.tensor(one.values[key], dtype=torch.float64) for one in group])
            for key in ("count", "confidence", "accuracy")
        )
        total = count.sum(0)
        used = total > 0
        x, y = ((count * value).sum(0)[used] / total[used] for value in (sure, right))
        lines[name] = list(zip(x.tolist(), y.tolist(), strict=True))
    return save(grid_of_lines({("accuracy", "confidence"): lines}, columns=1), folder / "figure1c")
