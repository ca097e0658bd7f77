"""Figures about the training: losses, scores on held-out data and the width of the posterior against the step."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import product

from varlearn.report.axis_scale import fitted
from varlearn.report.curve_figure import Curve, curve_figure
from varlearn.report.run_results import RunResults
from varlearn.report.series import Group

Points = list[tuple[float, float]]
SPLITS = ("validation", "test", "leave-one-out")
SCORES = (("nll", "NLL"), ("accuracy", "accuracy"), ("perplexity", "perplexity"), ("rmse", "RMSE"))


def training_figures(groups: Sequence[Group]) -> list[str]:
    """All curves that the logs have something for."""
    drawn = [
        _figure("Training loss", "Loss on training batches.", groups, lambda run: log_points(run, "loss"), "loss", True)
    ]
    for split, (key, word) in product(SPLITS, SCORES):
        title = f"{split[0].upper()}{split[1:]} {word}"
        caption = f"On {'test data' if split == 'test' else f'{split} data'} at the mean, while training."
        if split == "leave-one-out":
            caption = "Estimated from the training data while training: each example as if it had been left out."

        def points(run: RunResults, key: str = key, split: str = split) -> Points:
            return log_points(run, "eval", key, split=split)

        drawn.append(_figure(title, caption, groups, points, word, key != "accuracy"))
    drawn.append(
        _figure(
            "Mean sigma",
            "Width of the posterior: mean over all weights.",
            groups,
            lambda run: log_points(run, run.method, "std_mean"),
            "sigma",
            True,
        )
    )
    return drawn


def log_points(run: RunResults, *keys: str, split: str | None = None) -> Points:
    """(step, value) of the records that have the keys; of those about one split. Old records are about the test set.

    >>> log_points(RunResults("x", log=[{"step": 1, "loss": 0.5}, {"step": 2, "loss": "nan"}]), "loss")
    [(1.0, 0.5)]
    """
    points = []
    for record in run.log:
        if split is not None and record.get("split", "test") != split:
            continue
        value = record
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        if isinstance(value, (int, float)) and math.isfinite(value):
            points.append((float(record["step"]), float(value)))
    return points


def _figure(
    title: str, caption: str, groups: Sequence[Group], points: Callable[[RunResults], Points], y: str, log: bool
) -> str:
    """The mean over seeds of each group, with the range of the seeds around it; nothing for single points."""
    curves = [_over_seeds(group, [points(run) for run in group.runs]) for group in groups]
    values = [value for curve in curves for _, value in curve.points]
    steps = [step for curve in curves for step, _ in curve.points]
    if all(len(curve.points) < 2 for curve in curves):
        return ""
    if any(len(group.runs) > 1 for group in groups):
        caption += " Line: mean over seeds. Band: all seeds."
    edges = [value for curve in curves for line in (curve.low, curve.high) for _, value in line]
    return curve_figure(title, caption, curves, fitted("step", steps, low=0.0), fitted(y, values + edges, log=log))


def _over_seeds(group: Group, lines: Sequence[Points]) -> Curve:
    at_step = defaultdict[float, list[float]](list)
    for line in lines:
        for step, value in line:
            at_step[step].append(value)
    several = sum(bool(line) for line in lines) > 1
    steps = sorted(at_step)
    mean = [(step, sum(at_step[step]) / len(at_step[step])) for step in steps]
    low = [(step, min(at_step[step])) for step in steps] if several else []
    high = [(step, max(at_step[step])) for step in steps] if several else []
    return Curve(group.label, group.color, 0, mean, low, high)
