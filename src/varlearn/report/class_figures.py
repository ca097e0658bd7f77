"""Figures about the probabilities of classes: reliability, risk and coverage, entropy in and out of the domain."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from varlearn import metrics
from varlearn.report.axis_scale import Axis
from varlearn.report.curve_figure import MOST_IN_ONE, Curve, curve_figure, panel, panel_grid
from varlearn.report.page import figure, legend
from varlearn.report.series import Series
from varlearn.report.svg_plot import SMALL, Plot

FEW = 10  # examples in a bin below which its accuracy is a guess
BINS = 10
GRID = 50  # places at which curves of several seeds are averaged
LEAST = 0.001  # share of examples at which the axis of the entropies begins


def reliability_figure(series: Sequence[Series]) -> str:
    """Accuracy against confidence, over all seeds of a series."""
    curves = []
    for one in series:
        pairs = _labelled(one)
        if not pairs:
            continue
        merged = metrics.merge_reliability([metrics.reliability_curve(*pair, bins=BINS) for pair in pairs])
        bins = list(zip(merged.count.tolist(), merged.confidence.tolist(), merged.accuracy.tolist(), strict=True))
        many = [(confidence, accuracy) for count, confidence, accuracy in bins if count >= FEW]
        few = [(confidence, accuracy) for count, confidence, accuracy in bins if 0 < count < FEW]
        faint = few if many else []
        curves.append(Curve(one.label, one.color, one.dash, many or few, faint=faint, panel=one.group.label))
    return curve_figure(
        "Reliability",
        "Share of right answers among predictions of a given confidence. On the dotted diagonal, confidence equals "
        f"accuracy. Below it the model is overconfident. Faint dots rest on fewer than {FEW} examples.",
        curves,
        Axis("confidence", 0.0, 1.0),
        Axis("accuracy", 0.0, 1.0),
        lambda plot: plot.line([(0.0, 0.0), (1.0, 1.0)], None, dash=2),
    )


def risk_figure(series: Sequence[Series]) -> str:
    """Share of wrong answers against the share of examples that are answered."""
    curves, highest = [], 0.0
    for one in series:
        risks = [_risk(*pair) for pair in _labelled(one)]
        if risks:
            mean = torch.stack(risks).mean(0)
            highest = max(highest, float(mean.max()))
            curves.append(Curve(one.label, one.color, one.dash, _points(mean), panel=one.group.label))
    return curve_figure(
        "Risk and coverage",
        "Share of wrong answers if only the most confident share of the examples is answered. Lower is better; a "
        "curve that rises late knows which of its answers are doubtful.",
        curves,
        Axis("share of examples answered", 0.0, 1.0),
        Axis("share of wrong answers", 0.0, 1.1 * highest or 1.0),
    )


def entropy_figure(series: Sequence[Series]) -> str:
    """Histograms of the predictive entropy of the first seed, on the test set and out of the domain."""
    panels, names = [], dict[str, int]()
    x, y = Axis("predictive entropy in nats", 0.0, 1.0), Axis("share of the examples", LEAST, 1.0, log=True)
    crowded = len(series) > MOST_IN_ONE
    for one in (each for each in series if not (crowded and each.dash)):
        run = one.group.first
        inside = run.classified(one.kind)
        outside = {name: pair for name in run.outside if (pair := run.classified(one.kind, name)) is not None}
        if inside is None or not outside:
            continue
        most = math.log(inside[0].shape[1])
        edges = torch.linspace(0, most * 1.0001, 21)  # a uniform prediction has log C to the last bit, or a bit more
        plot = Plot(replace(x, high=float(edges[-1])), y, SMALL)
        words = []
        for dash, (name, pair) in enumerate({"test set": inside, **outside}.items()):
            entropies = metrics.entropy_per_example(pair[0])
            shares = torch.histogram(entropies.float(), edges).hist / len(entropies)
            plot.steps(edges.tolist(), shares.tolist(), one.color if dash == 0 else None, dash=min(dash, 3))
            words.append(f"{name}: mean entropy {float(entropies.mean()):.2f} nats.")
            names.setdefault(name, min(dash, 3))
        panels.append(panel(one.label, plot.svg(f"Predictive entropy of {one.label}. {' '.join(words)}")))
    if not panels:
        return ""
    keys = [(name, None, dash) for name, dash in names.items()]
    return figure(
        "Entropy in and out of the domain",
        panel_grid(panels, x, y),
        "Predictive entropy of each example. Filled: the test set. Dashed: data that the model was not trained for, "
        "which should lie further to the right.",
        legend=legend(keys),
        width="all",
    )


def _labelled(one: Series) -> list[tuple[Tensor, Tensor]]:
    """Log-probabilities and targets of each seed of a classifier."""
    found = [run.classified(one.kind) for run in one.group.runs]
    return [(pair[0], pair[1]) for pair in found if pair is not None and pair[1] is not None]


def _risk(log_probs: Tensor, targets: Tensor) -> Tensor:
    """The risk at GRID coverages, shape (GRID,)."""
    wrong = ~metrics.correct_per_example(log_probs, targets)
    risk = metrics.risk_coverage(metrics.max_log_prob(log_probs), wrong).risk
    places = (torch.arange(1, GRID + 1) * len(risk) / GRID).long().clamp(1, len(risk)) - 1
    return risk[places]


def _points(values: Tensor) -> list[tuple[float, float]]:
    return [((number + 1) / len(values), value) for number, value in enumerate(values.tolist())]
