"""Figures made of lines: one drawing for few lines, a small one for each of many."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from varlearn.report.axis_scale import Axis, short
from varlearn.report.page import figure, legend, table
from varlearn.report.svg_plot import SMALL, Plot, Points, thinned

MOST_IN_ONE = 6  # lines; more are drawn apart


@dataclass(frozen=True, eq=False)
class Curve:
    """A line of a figure.

    Attributes:
        label: its name.
        color: number of its colour; None for the colour of secondary text.
        dash: its pattern.
        points: (x, y) in the order of x.
        low: lower edge of a band around it, over the same x; empty for no band.
        high: upper edge.
        faint: further points, which rest on little data.
        panel: name of the small drawing that it is part of if there are many; its label unless given.
    """

    label: str
    color: int | None
    dash: int
    points: Points
    low: Points = ()
    high: Points = ()
    faint: Points = ()
    panel: str = ""

    def draw(self, plot: Plot) -> None:
        """Draw it."""
        if self.low:
            plot.band(thinned(self.low), thinned(self.high), self.color)
        plot.line(thinned(self.points), self.color, dash=self.dash, dots=2 < len(self.points) < 30)
        plot.dots(self.faint, self.color, faint=True)


def curve_figure(
    title: str,
    caption: str,
    curves: Sequence[Curve],
    x: Axis,
    y: Axis,
    under: Callable[[Plot], None] = lambda plot: None,
) -> str:
    """A figure of lines. If there are more than six, or two that look alike, each panel is drawn apart.

    Args:
        title: of the figure.
        caption: how to read it.
        curves: its lines; those without points are left out, and without any there is no figure.
        x: horizontal axis of all drawings.
        y: vertical axis of all drawings.
        under: draws what lies under the lines, e.g. a diagonal.

    >>> lines = [Curve(f"run {k}", k, 0, [(0, 1.0), (1, 0.5)]) for k in range(7)]
    >>> axes = Axis("step", 0.0, 1.0), Axis("loss", 0.0, 1.0)
    >>> [curve_figure("Loss", "", lines[:count], *axes).count("<svg") for count in (6, 7)]
    [1, 7]
    """
    curves = [curve for curve in curves if curve.points]
    if not curves:
        return ""
    numbers = _numbers(curves, x, y)
    looks = {(curve.color, curve.dash) for curve in curves}
    if len(curves) <= MOST_IN_ONE and len(looks) == len(curves):
        plot = Plot(x, y)
        under(plot)
        for curve in curves:
            curve.draw(plot)
        label = f"{title}: {y.title} against {x.title}. {' '.join(_words(curve) for curve in curves)}"
        entries = [(curve.label, curve.color, curve.dash) for curve in curves]
        return figure(title, plot.svg(label), caption, legend=legend(entries), numbers=numbers)
    caption = f"{caption} In gray, the lines of the other drawings.".strip()
    return figure(title, _panels(title, curves, x, y, under), caption, width="all", numbers=numbers)


def _panels(title: str, curves: Sequence[Curve], x: Axis, y: Axis, under: Callable[[Plot], None]) -> str:
    name = "all-" + "".join(letter if letter.isalnum() else "-" for letter in title.lower())
    every = Plot(x, y, SMALL)
    together: dict[str, list[Curve]] = {}
    for curve in curves:
        every.line(thinned(curve.points, 40), curve.color)
        together.setdefault(curve.panel or curve.label, []).append(curve)
    panels = []
    for number, (heading, members) in enumerate(together.items()):
        plot = Plot(x, y, SMALL)
        under(plot)
        for curve in members:
            curve.draw(plot)
        plot.behind(f'<g id="{name}" class="others">{every.marks}</g>' if number == 0 else f'<use href="#{name}"/>')
        panels.append(panel(heading, plot.svg(f"{title}. {' '.join(_words(curve) for curve in members)}")))
    return panel_grid(panels, x, y)


def panel(title: str, drawing: str) -> str:
    """One of several small drawings."""
    return f"<div><h4>{escape(title)}</h4>{drawing}</div>"


def panel_grid(panels: Sequence[str], x: Axis, y: Axis) -> str:
    """Small drawings side by side, with the titles of their axes above."""
    titles = f'<p class="axes">{escape(y.title)} (vertical) against {escape(x.title)}</p>'
    return f'{titles}<div class="panels">\n' + "\n".join(panels) + "\n</div>"


def _words(curve: Curve) -> str:
    first, last = curve.points[0], curve.points[-1]
    if len(curve.points) == 1:
        return f"{curve.label}: {short(first[1])}."
    return f"{curve.label}: from {short(first[1])} at {short(first[0])} to {short(last[1])} at {short(last[0])}."


def _numbers(curves: Sequence[Curve], x: Axis, y: Axis) -> str:
    rows = []
    for curve in curves:
        values = [(value, at) for at, value in curve.points if math.isfinite(value)]
        if values:
            (low, at_low), (high, at_high) = min(values), max(values)
            ends = [short(curve.points[0][1]), short(curve.points[-1][1])]
            rows.append([curve.label, *ends, f"{short(low)} at {short(at_low)}", f"{short(high)} at {short(at_high)}"])
    columns = ["line", "first", "last", "lowest", "highest"]
    return table(columns, rows, f"{y.title} against {x.title}") if rows else ""
