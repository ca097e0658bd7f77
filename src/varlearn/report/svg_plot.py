"""A small writer of figures as SVG. Colours come from the page's style sheet, so figures follow its theme."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from varlearn.report.axis_scale import Axis

Points = Sequence[tuple[float, float]]


class Frame(NamedTuple):
    """The size of a drawing and of the margins around its axes, in units of the SVG."""

    width: int
    height: int
    left: int
    right: int
    top: int
    bottom: int
    ticks: int
    titles: bool


LARGE = Frame(400, 250, 46, 12, 26, 38, ticks=4, titles=True)
SMALL = Frame(200, 132, 34, 6, 8, 18, ticks=2, titles=False)


class Plot:
    """Two axes, and marks between them.

    A colour is the number of a method's colour in the style sheet; None is the colour of secondary text. A dash is 0
    for a solid line, else the number of a pattern there.

    Args:
        x: the horizontal axis.
        y: the vertical axis.
        frame: `LARGE`, or `SMALL` for one of many drawings that share the titles of their axes.

    >>> plot = Plot(Axis("step", 0.0, 10.0), Axis("loss", 0.0, 1.0))
    >>> plot.line([(0, 1.0), (10, 0.5)], color=0)
    >>> 'role="img" aria-label="The loss &lt; 1"' in plot.svg("The loss < 1")
    True
    """

    def __init__(self, x: Axis, y: Axis, frame: Frame = LARGE) -> None:
        self.x, self.y, self.frame = x, y, frame
        self._marks: list[str] = []

    def line(self, points: Points, color: int | None, *, dash: int = 0, dots: bool = False) -> None:
        """A line through the points; it is broken where one has no place on the axes."""
        for part in self._parts(points):
            if len(part) > 1:
                self._marks.append(f'<path class="line {_color(color, dash)}" d="{_path(part)}"/>')
            if dots or len(part) == 1:
                self._marks += [
                    f'<circle class="dot {_color(color)}" cx="{x}" cy="{y}" r="{self._radius}"/>' for x, y in part
                ]

    def dots(self, points: Points, color: int | None, *, faint: bool = False) -> None:
        """A dot at each point."""
        kind = f"dot {_color(color)}{' faint' if faint else ''}"
        for part in self._parts(points):
            self._marks += [f'<circle class="{kind}" cx="{x}" cy="{y}" r="{self._radius}"/>' for x, y in part]

    def band(self, low: Points, high: Points, color: int | None) -> None:
        """The area between two lines over the same places."""
        both = [(a, b) for a, b in zip(low, high, strict=True) if self._holds(a) and self._holds(b)]
        if len(both) > 1:
            edge = [self._place(a) for a, _ in both] + [self._place(b) for _, b in reversed(both)]
            self._marks.append(f'<path class="band {_color(color)}" d="{_path(edge)}Z"/>')

    def steps(self, edges: Sequence[float], heights: Sequence[float], color: int | None, *, dash: int = 0) -> None:
        """A histogram: its outline, filled unless it is dashed. Heights below the axis are drawn at its beginning."""
        floor = self.y.low
        corners = [(edges[0], floor)]
        for left, right, height in zip(edges[:-1], edges[1:], heights, strict=True):
            top = height if self.y.holds(height) else floor
            corners += [(left, top), (right, top)]
        path = _path([self._place(corner) for corner in [*corners, (edges[-1], floor)]])
        if not dash:
            self._marks.append(f'<path class="band {_color(color)}" d="{path}Z"/>')
        self._marks.append(f'<path class="line thin {_color(color, dash)}" d="{path}"/>')

    def ranges(self, bars: Sequence[tuple[float, float, float]], color: int | None) -> None:
        """Vertical bars (x, low, high), cut off where they leave the axes."""
        for at, low, high in bars:
            low, high = max(low, self.y.low), min(high, self.y.high)
            if self.x.holds(at) and low < high:
                (x, bottom), (_, top) = self._place((at, low)), self._place((at, high))
                self._marks.append(f'<path class="line thin {_color(color)}" d="M{x} {bottom}V{top}"/>')

    def behind(self, marks: str) -> None:
        """Put SVG behind what is drawn so far, see `marks`."""
        self._marks.insert(0, marks)

    @property
    def marks(self) -> str:
        """What is drawn between the axes."""
        return "".join(self._marks)

    @property
    def _radius(self) -> float:
        return 2.6 if self.frame.titles else 1.7

    def svg(self, label: str) -> str:
        """The figure as an `<svg>` element.

        Args:
            label: what it shows, for people who do not see it.
        """
        size = f"0 0 {self.frame.width} {self.frame.height}"
        return (
            f'<svg class="plot" viewBox="{size}" role="img" aria-label="{escape(label)}">'
            f"{self._axes()}{self.marks}</svg>"
        )

    def _axes(self) -> str:
        frame = self.frame
        left, right, bottom = frame.left, frame.width - frame.right, frame.height - frame.bottom
        parts = []
        if frame.titles:
            parts.append(f'<text class="name" x="2" y="12">{escape(self.y.title)}</text>')
            parts.append(f'<text class="name end" x="{right}" y="{frame.height - 6}">{escape(self.x.title)}</text>')
        for value, name in self.y.ticks(frame.ticks):
            _, y = self._place((self.x.low, value))
            parts.append(f'<path class="grid" d="M{left} {y}H{right}"/>')
            parts.append(f'<text class="end" x="{left - 6}" y="{round(y + 3.8, 1)}">{escape(name)}</text>')
        parts.append(f'<path class="axis" d="M{left} {bottom}H{right}"/>')
        for value, name in self.x.ticks(frame.ticks):
            x, _ = self._place((value, self.y.low))
            anchor = "end" if x > right - 10 and not frame.titles else "middle"
            parts.append(f'<text class="{anchor}" x="{x}" y="{bottom + 14}">{escape(name)}</text>')
        return "".join(parts)

    def _parts(self, points: Points) -> list[list[tuple[float, float]]]:
        """Places of the points, cut into runs where one has no place."""
        parts: list[list[tuple[float, float]]] = [[]]
        for point in points:
            if self._holds(point):
                parts[-1].append(self._place(point))
            elif parts[-1]:
                parts.append([])
        return [part for part in parts if part]

    def _holds(self, point: tuple[float, float]) -> bool:
        return self.x.holds(point[0]) and self.y.holds(point[1])

    def _place(self, point: tuple[float, float]) -> tuple[float, float]:
        frame = self.frame
        width, height = frame.width - frame.left - frame.right, frame.height - frame.top - frame.bottom
        x, y = frame.left + width * self.x.place(point[0]), frame.top + height * (1 - self.y.place(point[1]))
        return round(x, 1), round(y, 1)


def thinned(points: Points, most: int = 160) -> list[tuple[float, float]]:
    """At most so many of the points, at equal distances, the last among them.

    >>> thinned([(k, 0.0) for k in range(10)], most=3)
    [(1, 0.0), (5, 0.0), (9, 0.0)]
    """
    every = -(-len(points) // most)
    return list(points[(len(points) - 1) % every :: every]) if points else []


def _path(places: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in places)


def _color(color: int | None, dash: int = 0) -> str:
    return ("soft" if color is None else f"c{color}") + (f" d{dash}" if dash else "")
