"""Figure 7: the methods on images of CIFAR-10 that are corrupted in 15 ways at 5 severities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from varlearn.data.corruption import CORRUPTIONS, corrupt
from varlearn.data.errors import MissingDataError
from varlearn.data.examples import Examples
from varlearn.methods import named
from varlearn.prediction import score
from varlearn.recipes.bayesian_comparison import comparison, methods
from varlearn.recipes.scales import Scale
from varlearn.recipes.study import Measured, Study, Values, by_line, mean_of, table_of
from varlearn.recipes.study_sheet import Sheet
from varlearn.recipes.tables import Line
from varlearn.train.loaded_run import LoadedRun, load_run

SEVERITIES = (1, 2, 3, 4, 5)
SMALL_IMAGES, SMALL_SAMPLES = 1_000, 16
SCORES = ("accuracy", "nll", "ece", "brier")
TITLES = {"accuracy": "accuracy", "nll": "NLL", "ece": "ECE, 20 bins", "brier": "Brier"}
NEEDS = (
    "The paper's: 5 runs of ResNet-20 per method and the published files of CIFAR-10-C, all 10,000 images, 64 samples. "
    "Without these files the corruptions are generated here, with the published parameters. The small scale takes the "
    f"first {SMALL_IMAGES:,} images and {SMALL_SAMPLES} samples."
)


def shift(scale: Scale) -> Study:
    """The study of Figure 7."""
    lines = []
    for method in methods():
        run = comparison(method, scale)
        lines.append(Line("cifar10", run.model.name, method, "", run, {}, (), {}))
    title = "Figure 7: shifted images, 15 corruptions at 5 severities"
    return Study(table_of("shift", title, lines), measure, sheet, draw, NEEDS, "comparison")


def measure(folder: Path, images: int | None = None, samples: int | None = None) -> Values:
    """Scores by severity: 0 is the test set itself, the others have one row for each corruption.

    Args:
        folder: of a finished run on CIFAR-10.
        images: the first this many; None for 1,000 at the small scale and all at the paper's.
        samples: of the posterior; None for 16 at the small scale, the run's own at the paper's.
    """
    run = load_run(folder)
    small = run.run.scale == "small"
    images = images or (SMALL_IMAGES if small else len(run.test))
    samples = samples or (SMALL_SAMPLES if small else run.run.evaluate.samples)
    clean = run.test.first(min(images, len(run.test)))
    rows: list[dict[str, Any]] = [{"severity": 0, "corruption": "none", **_scores(run, clean, samples)}]
    for severity in SEVERITIES:
        for kind in CORRUPTIONS:
            shifted = corrupted(clean, kind, severity, published=not small)
            rows.append({"severity": severity, "corruption": kind, **_scores(run, shifted, samples)})
    count = samples if named(run.run.optim.name).averages else 1
    return {"images": len(clean), "samples": count, "rows": rows}


def _scores(run: LoadedRun, examples: Examples, samples: int) -> dict[str, Any]:
    found = score(run.predict(examples, samples))
    return {key: found[key] for key in SCORES}


def corrupted(clean: Examples, kind: str, severity: int, published: bool = False) -> Examples:
    """Test images with a corruption: the published ones if they are wanted and here, else generated.

    Args:
        clean: the first test images of CIFAR-10.
        kind: of `CORRUPTIONS`.
        severity: 1 .. 5.
        published: look for CIFAR-10-C's files.
    """
    from varlearn import data

    assert isinstance(clean.inputs, torch.Tensor)
    if published:
        try:
            whole = data.load("cifar10c", "test", corruption=kind, severity=severity)
            return replace(clean, inputs=whole.first(len(clean)).inputs)
        except MissingDataError:
            pass
    if len(clean) <= SMALL_IMAGES:
        return replace(
            clean, inputs=_generated(clean.inputs.numpy().tobytes(), tuple(clean.inputs.shape), kind, severity)
        )
    return replace(clean, inputs=corrupt(clean.inputs, kind, severity))


@lru_cache(maxsize=len(SEVERITIES) * len(CORRUPTIONS))
def _generated(pixels: bytes, shape: tuple[int, ...], kind: str, severity: int) -> torch.Tensor:
    """Kept for the next run, since some take longer to make than to predict."""
    images = torch.frombuffer(bytearray(pixels), dtype=torch.uint8).view(shape)
    return corrupt(images, kind, severity)


def sheet(found: Sequence[Measured]) -> Sheet:
    """Mean over corruptions and seeds, by method and severity."""
    rows = []
    for name, group in by_line(found).items():
        for severity in (0, *SEVERITIES):
            scores = [row for one in group for row in one.values["rows"] if row["severity"] == severity]
            cells = [f"{mean_of([row[key] for row in scores]):.4f}" for key in SCORES]
            first = severity == 0
            about = f"n = {len(group)}, {group[0].values['images']:,} images, {group[0].values['samples']} passes"
            rows.append([name if first else "", about if first else "", str(severity), *cells])
    columns = ["method", "", "severity", *(TITLES[key] for key in SCORES)]
    return Sheet("Scores by severity, mean over the corruptions", columns, rows, len(SCORES) + 1)


def draw(found: Sequence[Measured], folder: Path) -> Sequence[Path]:
    """The paper's box plots: for each score and severity a box per method over corruptions and seeds."""
    from varlearn.report.panel_figures import boxes
    from varlearn.report.style import save

    panels: dict[str, dict[str, list[list[float]]]] = {}
    for key in SCORES:
        panels[TITLES[key]] = {
            name: [
                [row[key] for one in group for row in one.values["rows"] if row["severity"] == severity]
                for severity in (0, *SEVERITIES)
            ]
            for name, group in by_line(found).items()
        }
    return save(boxes(panels, [str(severity) for severity in (0, *SEVERITIES)], "severity"), folder / "shift")
