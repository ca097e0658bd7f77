"""Figures of several panels: boxes in groups, lines, histograms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib import colormaps
from matplotlib.figure import Figure

from varlearn.report.style import COLORS, drawing, figure

Point = tuple[float, float]


def boxes(panels: Mapping[str, Mapping[str, Sequence[Sequence[float]]]], groups: Sequence[str], across: str) -> Figure:
    """Box plots: a panel for each score, in it a group of boxes for each position, in it a box for each method.

    A box spans the quartiles, its line is the median, its whiskers reach the smallest and largest value.

    Args:
        panels: title -> method -> values of each group.
        groups: their names.
        across: what the groups are.

    >>> made = boxes({"NLL": {"SGD": [[1.0, 2.0], [3.0]]}}, ["0", "1"], "severity")
    >>> [text.get_text() for text in made.axes[0].get_xticklabels()]
    ['0', '1']
    """
    names = list(next(iter(panels.values())))
    with drawing():
        columns = min(2, len(panels))
        lines = -(-len(panels) // columns)
        made = figure(5.2 * columns, 2.9 * lines + 0.6)
        axes = made.subplots(lines, columns, squeeze=False).flatten()
        width = 0.8 / max(1, len(names))
        for axis, (title, methods) in zip(axes, panels.items(), strict=False):
            for number, (name, values) in enumerate(methods.items()):
                places = [group + (number - (len(names) - 1) / 2) * width for group in range(len(groups))]
                drawn = axis.boxplot(
                    [list(one) for one in values], positions=places, widths=0.85 * width, whis=(0, 100),
                    patch_artist=True, manage_ticks=False, medianprops={"linewidth": 0.8},
                )  # fmt: skip
                for part in ("boxes", "whiskers", "caps", "medians"):
                    for line in drawn[part]:
                        line.set(color=_color(number, len(names)))
                for box in drawn["boxes"]:
                    box.set(alpha=0.5)
                axis.plot([], [], color=_color(number, len(names)), label=name)
            axis.set_xticks(range(len(groups)), list(groups))
            axis.set(title=title, xlabel=across)
            axis.grid(visible=True, axis="y")
        _finish(made, axes, len(panels))
    return made


def grid_of_lines(panels: Mapping[tuple[str, str], Mapping[str, Sequence[Point]]], columns: int) -> Figure:
    """A panel of lines for each pair of labels, with logarithmic horizontal axes where they begin above 0.

    Args:
        panels: (vertical label, horizontal label) -> name of the line -> points.
        columns: panels side by side.

    >>> made = grid_of_lines({("NLL", "samples"): {"IVON": [(1, 0.5), (2, 0.4)]}}, columns=1)
    >>> made.axes[0].get_xscale()
    'log'
    """
    with drawing():
        lines = -(-len(panels) // columns)
        made = figure(4.0 * columns, 2.8 * lines + 0.5)
        axes = made.subplots(lines, columns, squeeze=False).flatten()
        for axis, ((up, across), curves) in zip(axes, panels.items(), strict=False):
            for number, (name, points) in enumerate(curves.items()):
                x, y = zip(*points, strict=True) if points else ((), ())
                few = len(points) < 30
                axis.plot(x, y, "o-" if few else "-", color=_color(number, len(curves)), markersize=3, label=name)
            axis.set(xlabel=across, ylabel=up)
            starts = [points[0][0] for points in curves.values() if points]
            if starts and min(starts) > 0 and "samples" in across:
                axis.set_xscale("log", base=2)
                axis.xaxis.set_major_formatter("{x:g}")
            axis.grid(visible=True)
        _finish(made, axes, len(panels))
    return made


def histogram_grid(
    grid: Mapping[tuple[str, str], Mapping[str, Sequence[float]]], columns: int, top: float, across: str
) -> Figure:
    """Histograms over one another, a row for each method and a column for each data set.

    Args:
        grid: (method, data set) -> name -> share of each bin from 0 to `top`.
        columns: data sets.
        top: end of the horizontal axis.
        across: what it shows.

    >>> len(histogram_grid({("SGD", "noise"): {"test set": [0.5, 0.5], "noise": [0.0, 1.0]}}, 1, 2.3, "nats").axes)
    1
    """
    with drawing():
        lines = -(-len(grid) // columns)
        made = figure(3.0 * columns, 1.5 * lines + 0.6)
        axes = made.subplots(lines, columns, squeeze=False, sharex=True).flatten()
        for axis, ((method, place), pair) in zip(axes, grid.items(), strict=False):
            for number, (name, shares) in enumerate(pair.items()):
                edges = [top * bin_ / len(shares) for bin_ in range(len(shares) + 1)]
                axis.stairs(list(shares), edges, fill=True, alpha=0.35, color=COLORS[number], label=name)
            axis.set_title(f"{method}, {place}")
        for axis in axes[-columns:]:
            axis.set_xlabel(across)
        _finish(made, axes, len(grid))
    return made


def _finish(made: Figure, axes: Any, used: int) -> None:
    """Hide panels that are left over, and name the colours once."""
    for axis in axes[used:]:
        axis.set_visible(False)
    found = {}
    for axis in axes[:used]:
        for handle, name in zip(*axis.get_legend_handles_labels(), strict=True):
            found.setdefault(name, handle)
    made.legend(found.values(), found.keys(), loc="outside upper left", ncols=min(4, max(1, len(found))))


def _color(number: int, count: int) -> object:
    return COLORS[number] if count <= len(COLORS) else colormaps["tab20"](number % 20)
