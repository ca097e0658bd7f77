"""Few lines in one drawing, many in small ones."""

import re

from varlearn.report.axis_scale import Axis
from varlearn.report.curve_figure import Curve, curve_figure

AXES = Axis("step", 0.0, 2.0), Axis("loss", 0.0, 1.0)


def curve(number: int, **others: object) -> Curve:
    return Curve(f"run {number}", number % 8, 0, [(0.0, 0.9), (1.0, 0.2), (2.0, 0.3)], **others)  # type: ignore[arg-type]


def test_six_lines_share_a_drawing_with_a_legend() -> None:
    html = curve_figure("Loss", "How to read it.", [curve(k) for k in range(6)], *AXES)
    assert html.count("<svg") == 1
    assert html.count('class="key') == 6
    assert "run 5: from 0.9 at 0 to 0.3 at 2." in html
    assert "<td" in html  # the numbers as a table
    assert "0.2 at 1" in html


def test_seven_lines_are_drawn_apart_in_the_same_colours() -> None:
    html = curve_figure("Loss", "", [curve(k) for k in range(7)], *AXES)
    assert html.count("<svg") == 7
    assert html.count("<use") == 6  # the gray lines are stored once
    assert re.findall(r"<h4>(.*?)</h4>", html) == [f"run {k}" for k in range(7)]
    assert '<figure class="all">' in html
    own = re.findall(r'<use href="#all-loss"/><path class="line (c\d)"', html)
    assert own == [f"c{k}" for k in range(1, 7)]


def test_lines_that_look_alike_are_drawn_apart() -> None:
    alike = [curve(0), curve(8)]
    assert curve_figure("Loss", "", alike, *AXES).count("<svg") == 2
    kinds = [curve(0, panel="IVON"), curve(8, panel="IVON")]
    assert curve_figure("Loss", "", kinds, *AXES).count("<svg") == 1


def test_without_points_there_is_no_figure() -> None:
    assert curve_figure("Loss", "", [Curve("a", 0, 0, [])], *AXES) == ""
    assert curve_figure("Loss", "", [], *AXES) == ""
