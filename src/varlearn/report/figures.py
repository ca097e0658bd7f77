"""The figures: each a function from numbers to a matplotlib figure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from textwrap import wrap

import torch
from matplotlib.figure import Figure
from torch import Tensor

from varlearn.metrics import ReliabilityCurve, ece_from_curve
from varlearn.report.style import COLORS, INK, drawing, figure, logarithmic

MISSING = float("nan")
FEW = 10  # examples in a bin below which its accuracy is a guess
_COLUMN, _IMAGE, _GAP, _HEAD, _LINE = 1.05, 0.95, 0.05, 0.3, 0.13  # inches of a gallery: _HEAD is the height of a title
_LETTERS = 18  # in a line of a gallery's captions


def reliability(curves: Mapping[str, ReliabilityCurve]) -> Figure:
    """Accuracy against confidence, and how many predictions were made with each confidence.

    On the diagonal a prediction made with confidence p comes true with frequency p; below it the model is too sure.

    Args:
        curves: name of the method -> its curve; all with the same bins.

    >>> from varlearn.metrics import reliability_curve
    >>> curve = reliability_curve(torch.tensor([[0.9, 0.1]]).log(), torch.tensor([0]))
    >>> [axis.get_xlabel() for axis in reliability({"SGD": curve}).axes]
    ['', 'confidence']
    """
    with drawing():
        made = figure(4.2, 4.4 + 0.18 * len(curves))
        top, bottom = made.subplots(2, 1, sharex=True, height_ratios=(3, 1))
        top.plot((0, 1), (0, 1), color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
        for color, (name, curve) in zip(_colors(len(curves)), curves.items(), strict=True):
            label = f"{name}, ECE {ece_from_curve(curve):.4f}"
            many, few = curve.count >= FEW, (curve.count > 0) & (curve.count < FEW)
            x, y = curve.confidence.cpu(), curve.accuracy.cpu()
            top.plot(x[many].tolist(), y[many].tolist(), marker="o", markersize=3, label=label, color=color)
            top.plot(x[few].tolist(), y[few].tolist(), "o", markersize=3, alpha=0.3, color=color)
            share = curve.count.double() / curve.count.sum().clamp(min=1)
            bottom.stairs(share.tolist(), curve.edges.tolist(), color=color, linewidth=1.4)
        top.set(ylabel="accuracy", xlim=(0, 1), ylim=(0, 1.02))
        bottom.set(xlabel="confidence", ylabel="share")
        logarithmic(bottom)
        made.legend(loc="outside upper left")
        for axis in (top, bottom):
            axis.grid(visible=True)
    return made


def entropies(inside: Tensor, outside: Mapping[str, Tensor], title: str = "", top: float | None = None) -> Figure:
    """Histograms of the predictive entropy, on the test set and on data from elsewhere.

    The further apart, the better the model tells what it does not know.

    Args:
        inside: entropy of each test example, in nats, shape (N,).
        outside: name of a data set -> entropies of its examples.
        title: above the figure.
        top: end of the horizontal axis, log C for C classes; None for the largest entropy.

    >>> len(entropies(torch.rand(9), {"noise": torch.rand(9)}).axes[0].patches)  # an area and an outline each
    4
    """
    with drawing():
        made = figure(4.2, 3.0)
        axis = made.subplots()
        sets = {"test set": inside, **outside}
        end = top or max(float(values.max()) for values in sets.values()) or 1.0
        edges = torch.linspace(0, end * 1.0001, 31)  # a uniform prediction has log C to the last bit, or a bit more
        for color, (name, values) in zip(_colors(len(sets)), sets.items(), strict=True):
            counts = torch.histogram(values.float().cpu(), edges).hist / len(values)
            axis.stairs(counts.tolist(), edges.tolist(), fill=True, alpha=0.3, color=color, label=name)
            axis.stairs(counts.tolist(), edges.tolist(), color=color, linewidth=0.9)
        axis.set(xlabel="predictive entropy, nats", ylabel="share of examples", title=title)
        logarithmic(axis)
        axis.grid(visible=True)
        axis.legend()
    return made


def curves(
    series: Mapping[str, Sequence[tuple[float, float]]], xlabel: str, ylabel: str, *, log: bool = False
) -> Figure:
    """Lines over training steps; points that are not finite break a line.

    Args:
        series: name -> points (x, y).
        xlabel: of the horizontal axis.
        ylabel: of the vertical axis.
        log: logarithmic vertical axis, where all values are positive and span more than a factor of ten.

    >>> len(curves({"loss": [(1, 2.0), (2, 1.0)]}, "step", "loss").axes[0].lines)
    1
    """
    with drawing():
        made = figure(4.2, 3.0)
        axis = made.subplots()
        values: list[float] = []
        for color, (name, points) in zip(_colors(len(series)), series.items(), strict=True):
            heights = [y if math.isfinite(y) else MISSING for _, y in points]
            values += [y for y in heights if math.isfinite(y)]
            marker = "o" if len(points) < 30 else None
            axis.plot([x for x, _ in points], heights, label=name, color=color, marker=marker, markersize=3)
        if log and values and min(values) > 0 and max(values) > 10 * min(values):
            logarithmic(axis)
        axis.set(xlabel=xlabel, ylabel=ylabel)
        axis.grid(visible=True)
        if len(series) > 1:
            axis.legend()
    return made


def gallery(rows: Mapping[str, tuple[Tensor, Sequence[str]]]) -> Figure:
    """Rows of images with a caption below each.

    Args:
        rows: title of the row -> images (n, C, H, W) in [0, 1] with 1 or 3 channels, and n captions. Long lines of a
            caption are broken.

    >>> len(gallery({"least certain": (torch.zeros(2, 1, 8, 8), ["3 or 8", "5"])}).axes)
    2
    """
    columns = max(len(images) for images, _ in rows.values())
    words = [[_broken(caption) for caption in captions[: len(images)]] for images, captions in rows.values()]
    lines = [max(caption.count("\n") + 1 for caption in row) for row in words]
    width, height = max(4.2, _COLUMN * columns), sum(_HEAD + _IMAGE + _LINE * (count + 1) for count in lines)
    with drawing():
        made = figure(width, height)
        made.set_layout_engine("none")
        top = height  # of the row, in inches
        for (title, (images, _)), captions, count in zip(rows.items(), words, lines, strict=True):
            made.text(_GAP / width, (top - _GAP) / height, title, va="top", fontsize=10)
            bottom = top - _HEAD - _IMAGE
            for place, (image, caption) in enumerate(zip(images, captions, strict=True)):
                corner = ((_GAP + _COLUMN * place) / width, bottom / height)
                axis = made.add_axes((*corner, _IMAGE / width, _IMAGE / height))
                axis.set_axis_off()
                pixels = image.clamp(0, 1).permute(1, 2, 0).squeeze(-1)
                axis.imshow(pixels.cpu().numpy(), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
                axis.text(0.5, -0.04, caption, transform=axis.transAxes, ha="center", va="top", fontsize=7)
            top = bottom - _LINE * (count + 1)
    return made


def _broken(caption: str) -> str:
    """The caption in lines that are no wider than a column."""
    return "\n".join(part for line in caption.splitlines() for part in wrap(line, _LETTERS))


def _colors(count: int) -> list[str]:
    return [COLORS[i % len(COLORS)] for i in range(count)]
