"""Figures 3a and 3b: histograms of the predictive entropy, on the test set and on other data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import torch

from varlearn.recipes.bayesian_comparison import comparison, methods
from varlearn.recipes.scales import Scale
from varlearn.recipes.study import Measured, Study, Values, by_line, mean_of, table_of
from varlearn.recipes.study_sheet import Sheet
from varlearn.recipes.tables import Line
from varlearn.train import load_run_predictions

BINS = 30
NEEDS = (
    "The paper's: the runs of Table 3, SVHN's 26,032 test images and Flowers102's 6,149. The small scale takes the "
    "runs of the small Table 3, and the parts of the two sets that the data pack has (55 and 5,000 images)."
)


def entropy(scale: Scale) -> Study:
    """The study of Figures 3a and 3b, with TinyImageNet and CIFAR-100."""
    lines = []
    for method in methods():
        run = comparison(method, scale)
        lines.append(Line("cifar10", run.model.name, method, "", run, {}, (), {}))
    title = "Figures 3a and 3b: entropy of predictions in and out of domain"
    return Study(table_of("entropy", title, lines), measure, sheet, draw, NEEDS, "comparison")


def measure(folder: Path) -> Values:
    """Shares of examples in 30 bins of the entropy from 0 to log C, and its median, for each data set."""
    sets = {}
    for name, found in load_run_predictions(folder).items():
        averaged = found["averaged"]
        top = math.log(averaged.log_probs.shape[1])
        values = averaged.predictive_entropy.double().clamp(0.0, top)
        shares = torch.histc(values.float(), BINS, 0.0, top) / len(values)
        sets[name] = {"examples": len(values), "median": values.median().item(), "shares": shares.tolist()}
    return {"top": top, "sets": sets}


def overlap(one: Sequence[float], other: Sequence[float]) -> float:
    """What two histograms share: 1 for equal ones, 0 for disjoint ones.

    >>> overlap([0.5, 0.5, 0.0], [0.0, 0.5, 0.5])
    0.5
    """
    return sum(map(min, one, other))


def sheet(found: Sequence[Measured]) -> Sheet:
    """The median of the entropy in nats, the height of the lowest bin in the domain, and the overlap of histograms."""
    outside = [name for name in found[0].values["sets"] if name not in ("test", "validation")] if found else []
    rows = []
    for name, group in by_line(found).items():
        sets = [one.values["sets"] for one in group]
        cells = [
            f"{mean_of([one['test']['median'] for one in sets]):.3f}",
            f"{mean_of([one['test']['shares'][0] for one in sets]):.3f}",
        ]
        for place in outside:
            cells.append(f"{mean_of([one[place]['median'] for one in sets]):.3f}")
            cells.append(f"{mean_of([overlap(one['test']['shares'], one[place]['shares']) for one in sets]):.3f}")
        rows.append([name, f"n = {len(group)}", *cells])
    titles = [title for place in outside for title in (f"median {place}", f"overlap {place}")]
    columns = ["method", "", "median test", "share in the lowest bin", *titles]
    return Sheet("Entropy of the averaged predictions, nats", columns, rows, 2 + len(titles))


def draw(found: Sequence[Measured], folder: Path) -> Sequence[Path]:
    """A row of histograms for each method: the test set, and each other set over it."""
    from varlearn.report.panel_figures import histogram_grid
    from varlearn.report.style import save

    outside = [name for name in found[0].values["sets"] if name not in ("test", "validation")]
    top = found[0].values["top"]
    grid = {}
    for name, group in by_line(found).items():
        for place in outside:
            pair = {
                "test set": [
                    mean_of(list(v)) for v in zip(*(o.values["sets"]["test"]["shares"] for o in group), strict=True)
                ],
                place: [
                    mean_of(list(v)) for v in zip(*(o.values["sets"][place]["shares"] for o in group), strict=True)
                ],
            }
            grid[name, place] = pair
    return save(histogram_grid(grid, len(outside), top, "predictive entropy, nats"), folder / "entropy")


def _shares(group: Sequence[Measured], place: str) -> list[float]:
    """The histogram of a data set, mean over runs."""
    every = [one.values["sets"][place]["shares"] for one in group]
    return [mean_of(shares) for shares in zip(*every, strict=True)]
