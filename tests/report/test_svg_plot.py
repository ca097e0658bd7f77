"""Marks at their places, read back from the SVG."""

import re
from xml.etree import ElementTree

import pytest

from varlearn.report.axis_scale import Axis
from varlearn.report.svg_plot import LARGE, SMALL, Plot, thinned


@pytest.fixture
def plot() -> Plot:
    return Plot(Axis("x", 0.0, 1.0), Axis("y", 0.0, 1.0))


def places(plot: Plot, kind: str) -> list[list[tuple[float, float]]]:
    paths = re.findall(rf'<path class="{kind}[^"]*" d="M([^"]*?)Z?"', plot.marks)
    return [[(float(x), float(y)) for x, y in (one.split(" ") for one in path.split("L"))] for path in paths]


def test_corners_of_the_axes(plot: Plot) -> None:
    plot.line([(0.0, 0.0), (1.0, 1.0)], 3, dash=1)
    assert places(plot, "line") == [[(LARGE.left, 250 - LARGE.bottom), (400 - LARGE.right, LARGE.top)]]
    assert 'class="line c3 d1"' in plot.marks


def test_a_line_is_broken_where_a_point_has_no_place(plot: Plot) -> None:
    plot.line([(0.0, 0.0), (0.1, 0.0), (0.2, float("nan")), (0.3, 0.0), (0.4, 0.0), (0.5, 7.0), (0.6, 0.5)], 0)
    assert [len(part) for part in places(plot, "line")] == [2, 2]
    assert plot.marks.count("<circle") == 1  # the single point at the end


def test_histograms_begin_and_end_on_the_axis(plot: Plot) -> None:
    plot.steps([0.0, 0.5, 1.0], [0.25, 0.75], 1)
    (band,) = places(plot, "band")
    bottom = 250 - LARGE.bottom
    assert (band[0][1], band[-1][1]) == (bottom, bottom)
    assert len(band) == 6
    dashed = Plot(plot.x, Axis("y", 0.01, 1.0, log=True))
    dashed.steps([0.0, 0.5, 1.0], [0.0, 1.0], None, dash=2)  # a share of 0 has no logarithm
    assert "band" not in dashed.marks
    assert places(dashed, "line")[0][1][1] == bottom


def test_ranges_are_cut_off_at_the_axes(plot: Plot) -> None:
    plot.ranges([(0.5, -3.0, 3.0), (0.5, 2.0, 3.0)], 0)
    assert re.findall(r'd="M([\d.]+) ([\d.]+)V([\d.]+)"', plot.marks) == [("217.0", "212.0", "26.0")]


def test_the_drawing_is_one_image_with_its_words(plot: Plot) -> None:
    plot.dots([(0.5, 0.5)], 0, faint=True)
    text = plot.svg('a < b & "c"')
    svg = ElementTree.fromstring(text)
    assert svg.attrib["role"] == "img"
    assert svg.attrib["aria-label"] == 'a < b & "c"'
    assert [one.text for one in svg.iter("text")][:2] == ["y", "x"]
    small = Plot(Axis("<x>", 0.0, 1.0), plot.y, SMALL).svg("s")
    assert "x&gt;" not in small  # small drawings share the titles of their axes


def test_thinned_keeps_the_last_point() -> None:
    points = [(float(k), 0.0) for k in range(1000)]
    few = thinned(points, 160)
    assert len(few) <= 160
    assert few[-1] == points[-1]
    assert thinned(points[:5]) == points[:5]
    assert thinned([]) == []
