"""Figure 3c: is a model less sure between two clusters of data than at them?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from varlearn.data.in_between import CLUSTERS
from varlearn.methods import METHODS
from varlearn.recipes.in_between_regression import in_between_run
from varlearn.recipes.scales import Scale
from varlearn.recipes.study import Measured, Study, Values, by_line, mean_of, table_of
from varlearn.recipes.study_sheet import Sheet
from varlearn.recipes.tables import Line
from varlearn.train.loaded_run import load_run

GRID = 97  # inputs from -1.2 to 1.2
GAP = (-0.5, 0.3)  # well inside
NEEDS = (
    "The paper's set-up is not published: this is the regression of Foong et al. (2019), 100 examples, a network with "
    "two hidden layers of 50. Both scales are the same, some seconds per run."
)


def in_between_lines(scale: Scale) -> list[Line]:
    """A line for each method."""
    return [Line("in-between", "mlp", method, "", in_between_run(method, scale), {}, (), {}) for method in METHODS]


def in_between(scale: Scale) -> Study:
    """The study of Figure 3c."""
    title = "Figure 3c: uncertainty between clusters"
    return Study(table_of("in-between", title, in_between_lines(scale)), measure, sheet, draw, NEEDS, "in-between")


def measure(folder: Path) -> Values:
    """Mean and standard deviation of the prediction along the axis, and the ratio of the gap to the clusters."""
    run = load_run(folder)
    grid = torch.linspace(-1.2, 1.2, GRID)[:, None]
    found = run.predict(replace(run.test, inputs=grid, targets=torch.zeros(GRID)))
    weights, total = (value.flatten().double() for value in (found.epistemic.sqrt(), found.std))
    x = grid[:, 0]
    inside = (x > GAP[0]) & (x < GAP[1])
    at_data = torch.stack([(x >= low) & (x <= high) for low, high in CLUSTERS]).any(0)
    gap, near = weights[inside].mean().item(), weights[at_data].mean().item()
    return {
        "x": x.tolist(),
        "mean": found.mean.flatten().tolist(),
        "std_of_weights": weights.tolist(),
        "std": total.tolist(),
        "gap": gap,
        "at_data": near,
        "ratio": gap / near if near > 0.0 else None,
    }


def sheet(found: Sequence[Measured]) -> Sheet:
    """The standard deviation that the weights cause, in the gap and at the data."""
    rows = []
    for name, group in by_line(found).items():
        ratios = [one.values["ratio"] for one in group if one.values["ratio"] is not None]
        cells = [f"{mean_of([one.values[key] for one in group]):.3f}" for key in ("gap", "at_data")]
        rows.append([name, f"n = {len(group)}", *cells, f"{mean_of(ratios):.2f}" if ratios else "–"])
    return Sheet("Standard deviation of the function", ["method", "", "in the gap", "at the data", "ratio"], rows, 3)


def draw(found: Sequence[Measured], folder: Path) -> Sequence[Path]:
    """Mean and two standard deviations of the function, a panel for each method."""
    from varlearn.report.panel_figures import grid_of_lines
    from varlearn.report.style import save

    panels = {}
    for name, group in by_line(found).items():
        values = group[0].values
        mean, std = values["mean"], values["std_of_weights"]
        lines = {
            "mean": list(zip(values["x"], mean, strict=True)),
            "mean - 2 std": [(x, m - 2 * s) for x, m, s in zip(values["x"], mean, std, strict=True)],
            "mean + 2 std": [(x, m + 2 * s) for x, m, s in zip(values["x"], mean, std, strict=True)],
            "data": [(x, torch.cos(torch.tensor(4 * x + 0.8)).item()) for x in values["x"]],
        }
        panels[name, "x"] = lines
    return save(grid_of_lines(panels, columns=min(4, len(panels))), folder / "in-between")
