"""Figures about the posterior: how many samples, which temperature, how wide in each layer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

from varlearn.report.axis_scale import Axis, fitted
from varlearn.report.curve_figure import Curve, curve_figure
from varlearn.report.page import table
from varlearn.report.run_results import RunResults
from varlearn.report.series import Group

SPAN = 0.05  # least length of an axis of NLLs, as a share of the NLL


def samples_figure(groups: Sequence[Group]) -> str:
    """NLL of the average over s samples against s; the mean of the posterior as a dashed line."""
    curves = []
    for group in groups:
        found = {run: nlls for run in group.runs if len(nlls := _nll_by_samples(run)) > 1}
        if not found:  # a point, or temperature 0: one sample is enough
            continue
        count = min(len(nlls) for nlls in found.values())
        curves.append(_averaged(group, [[(s + 1.0, nlls[s]) for s in range(count)] for nlls in found.values()]))
        at_mean = [run.metrics.get("mean", {}).get("nll") for run in found]
        if all(isinstance(nll, (int, float)) for nll in at_mean):
            level = sum(at_mean) / len(at_mean)
            line = [(1.0, level), (float(count), level)]
            curves.append(Curve(f"{group.label} at the mean", group.color, 1, line, panel=group.label))
    points = [point for curve in curves for point in curve.points]
    if not points:
        return ""
    most = max(s for s, _ in points)
    return curve_figure(
        "NLL and the number of samples",
        "NLL on the test set of the average over the first samples of the posterior. Where the curve is flat, more "
        "samples do not help.",
        curves,
        Axis("samples", 1.0, most, log=True, named=_powers(most)),
        fitted("NLL", _with_bands(curves), log=True, span=SPAN),
    )


def temperature_figure(groups: Sequence[Group]) -> str:
    """NLL against the temperature of the posterior, with the mean at its left end."""
    curves, facts = [], {}
    for group in groups:
        found = [run.analysis["temperature"] for run in group.runs if run.analysis.get("temperature")]
        lines = [_finite_points(one["points"]) for one in found]
        if lines:
            facts = found[0]
            curves.append(_averaged(group, [_by_factor(line) for line in lines]))
    if not curves:
        return ""
    ticks = ((0.0, "mean"), (1.0, "1/16"), (2.0, "1/4"), (3.0, "1"), (4.0, "4"))
    return curve_figure(
        "NLL and the temperature",
        f"NLL on {facts['examples']:,} {facts['split']} examples with {facts['samples']} samples, the posterior's "
        "variance times a factor. Lowest at the left: the posterior is too wide. Lowest at the right: too narrow.",
        curves,
        Axis("factor of the variance", -0.15, 4.15, named=ticks),
        fitted("NLL", _with_bands(curves), log=True, span=SPAN),
    )


def layer_figures(groups: Sequence[Group]) -> list[str]:
    """Sigma and the size of the weights in each layer, and h in each layer; of the first seed."""
    found = {group: layers for group in groups if (layers := group.first.analysis.get("layers"))}
    sigma = [curve for group, layers in found.items() for curve in _sigma(group, layers)]
    hess = [
        Curve(group.label, group.color, 0, points)
        for group, layers in found.items()
        if (points := [(float(n), layer["hess_median"]) for n, layer in enumerate(layers, 1) if layer["hess_median"]])
    ]
    if not sigma:
        return []
    count = max(len(layers) for layers in found.values())
    x = Axis("tensor, in the order of the network", 0.7, count + 0.3, named=_few(count))
    y = fitted("size", (value for curve in sigma for _, value in [*curve.points, *curve.low, *curve.high]), log=True)
    drawn = [
        curve_figure(
            "Width of the posterior",
            "Solid: median of sigma in each tensor of weights, with the range from 10% to 90%. Dashed: root mean "
            "square of the weights. Weights below sigma are noise to the model.",
            sigma,
            x,
            y,
        )
    ]
    if hess:
        h = fitted("h", (value for curve in hess for _, value in curve.points), log=True, span=4 * SPAN)
        drawn.append(
            curve_figure(
                "Curvature h", "Median of h in each tensor of weights. Larger h means smaller sigma.", hess, x, h
            )
        )
    return drawn


def layer_table(groups: Sequence[Group]) -> str:
    """The numbers behind `layer_figures`, with the names of the tensors."""
    parts = []
    for group in groups:
        rows = [
            [
                layer["name"],
                f"{layer['count']:,}",
                *(_number(layer[key]) for key in ("weight_rms", "std_median", "std_low", "std_high", "hess_median")),
            ]
            for layer in group.first.analysis.get("layers", ())
        ]
        columns = ["tensor", "weights", "RMS of weights", "median σ", "10% of σ", "90% of σ", "median h"]
        if rows:
            body = table(columns, rows, f"Layers of {group.label}")
            parts.append(f"<details><summary>Numbers of each layer, {escape(group.label)}</summary>{body}</details>")
    return "\n".join(parts)


def _sigma(group: Group, layers: Sequence[dict[str, Any]]) -> list[Curve]:
    def line(key: str) -> list[tuple[float, float]]:
        return [(float(number), layer[key]) for number, layer in enumerate(layers, 1)]

    median, low, high = line("std_median"), line("std_low"), line("std_high")
    return [
        Curve(f"{group.label}: σ", group.color, 0, median, low, high, panel=group.label),
        Curve(f"{group.label}: weights", group.color, 1, line("weight_rms"), panel=group.label),
    ]


def _averaged(group: Group, lines: Sequence[Sequence[tuple[float, float]]]) -> Curve:
    """The mean over seeds. Seeds differ in their level, so a band would hide the shape."""
    points = []
    for together in zip(*lines, strict=False):
        x, values = together[0][0], [y for _, y in together]
        points.append((x, sum(values) / len(values)))
    return Curve(group.label, group.color, 0, points)


def _with_bands(curves: Sequence[Curve]) -> list[float]:
    return [value for curve in curves for line in (curve.points, curve.low, curve.high) for _, value in line]


def _nll_by_samples(run: RunResults) -> list[float]:
    found = run.predictions.get("test/averaged")
    return [] if found is None or found.nll_by_samples is None else found.nll_by_samples.tolist()


def _finite_points(points: Sequence[Sequence[Any]]) -> list[tuple[float, float]]:
    return [(float(t), float(nll) if isinstance(nll, (int, float)) else math.inf) for t, nll in points]


def _by_factor(line: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Points over the factor of the posterior's own temperature, of which the last point is 4 times."""
    own = line[-1][0] / 4
    return [(_place(t / own), nll) for t, nll in line]


def _place(factor: float) -> float:
    """Factors 0, 1/16, 1/4, 1, 4 at equal distances."""
    return 0.0 if factor == 0 else 3.0 + math.log(factor, 4)


def _powers(most: float) -> tuple[tuple[float, str], ...]:
    values = [2.0**k for k in range(int(math.log2(most)) + 1)]
    every = 1 if len(values) < 9 else 2
    return tuple((value, f"{value:g}") for value in values[::every])


def _few(count: int) -> tuple[tuple[float, str], ...]:
    every = max(1, -(-count // 10))
    return tuple((float(number), str(number)) for number in range(1, count + 1, every))


def _number(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, (int, float)) else "–"
