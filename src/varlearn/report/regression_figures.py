"""Figures about predicted numbers: do intervals hold what they claim, and how they look."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from varlearn import metrics
from varlearn.prediction import RegressionPredictions
from varlearn.report.axis_scale import Axis, fitted
from varlearn.report.curve_figure import Curve, curve_figure, panel, panel_grid
from varlearn.report.page import figure
from varlearn.report.series import Series
from varlearn.report.svg_plot import SMALL, Plot

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
SHOWN = 40  # intervals in one drawing
FRAME = SMALL._replace(width=230, height=190, ticks=4)
ALONE = FRAME._replace(width=400, height=250)


def coverage_figure(series: Sequence[Series]) -> str:
    """Share of targets inside the central interval of each level, over all seeds."""
    curves = []
    for one in series:
        found = [pair for p in one.predictions() if (pair := _gaussians(p)) is not None]
        if found:
            points = [(level, _mean([_coverage(*pair, level) for pair in found])) for level in LEVELS]
            curves.append(Curve(one.label, one.color, one.dash, points, panel=one.group.label))
    return curve_figure(
        "Coverage of intervals",
        "Share of test targets inside the central interval of each level. On the dotted diagonal the intervals hold "
        "what they claim. Below it they are too narrow.",
        curves,
        Axis("level of the interval", 0.0, 1.0),
        Axis("share of targets inside", 0.0, 1.0),
        lambda plot: plot.line([(0.0, 0.0), (1.0, 1.0)], None, dash=2),
    )


def interval_figure(series: Sequence[Series]) -> str:
    """90% intervals of test examples at equal distances in the order of their predictions; of the first seed."""
    shown = {
        one: _intervals(*pair)
        for one in series
        if not one.dash and (found := one.predictions()) and (pair := _gaussians(found[0])) is not None
    }
    if not shown:
        return ""
    ends = torch.cat([torch.cat(columns) for columns in shown.values()]).tolist()
    most = max(len(low) for low, _, _ in shown.values())
    x = Axis("test examples, in the order of their predictions", -1.0, float(most), named=((-1.0, ""),))
    y = fitted("target", ends)
    panels = []
    for one, (low, high, targets) in shown.items():
        plot = Plot(x, y, FRAME if len(shown) > 1 else ALONE)
        places = [float(place) for place in range(len(low))]
        plot.ranges(list(zip(places, low.tolist(), high.tolist(), strict=True)), one.color)
        inside = (low <= targets) & (targets <= high)
        for held, color in ((inside, one.color), (~inside, None)):
            plot.dots([(place, float(targets[int(place)])) for place in places if held[int(place)]], color)
        label = f"90% intervals of {one.label}: {int(inside.sum())} of {len(low)} targets shown lie inside."
        panels.append(panel(one.label, plot.svg(label)))
    caption = (
        f"Lines: 90% intervals of up to {SHOWN} test examples. Dots: their targets, gray where they lie outside. One "
        "in ten should."
    )
    width = "" if len(panels) == 1 else "double" if len(panels) < 4 else "all"
    return figure("Intervals", panel_grid(panels, x, y), caption, width=width)


def _intervals(mean: Tensor, variance: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Lower ends, upper ends and targets of the examples shown, in the order of their predictions."""
    order = mean.argsort()
    chosen = order[torch.linspace(0, len(order) - 1, min(SHOWN, len(order))).round().long()]
    low, high = metrics.gaussian_interval(mean[chosen], variance[chosen], 0.9)
    return low, high, targets[chosen]


def _gaussians(predictions: object) -> tuple[Tensor, Tensor, Tensor] | None:
    """Mean, variance and targets, (N,) each, of a regression with targets and a variance."""
    if not isinstance(predictions, RegressionPredictions) or predictions.targets is None:
        return None
    mean, variance = predictions.mean.flatten().double(), predictions.variance.flatten().double()
    return (mean, variance, predictions.targets.flatten().double()) if bool((variance > 0).all()) else None


def _coverage(mean: Tensor, variance: Tensor, targets: Tensor, level: float) -> float:
    return metrics.interval_coverage(*metrics.gaussian_interval(mean, variance, level), targets)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
