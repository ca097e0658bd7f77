"""Drawings that leave matplotlib's own settings alone."""

from pathlib import Path

import matplotlib

from varlearn.report.style import INK, drawing, figure, save, svg


def test_settings_are_put_back() -> None:
    before = dict(matplotlib.rcParams)
    with drawing():
        assert matplotlib.rcParams["text.color"] == INK
    assert dict(matplotlib.rcParams) == before


def test_svg_has_no_date_and_takes_the_pages_colour() -> None:
    made = figure(1, 1)
    made.text(0.1, 0.5, "x < y", color=INK)
    text = svg(made)
    assert text.startswith("<svg")
    assert "date" not in text.lower()
    assert "currentColor" in text
    assert "x &lt; y" in text
    assert text == svg(made)


def test_save_writes_both_forms(tmp_path: Path) -> None:
    png, vector = save(figure(1, 1), tmp_path / "deep" / "my.figure")
    assert (png.name, vector.name) == ("my.figure.png", "my.figure.svg")
    assert png.read_bytes().startswith(b"\x89PNG")
    assert vector.read_text().startswith("<svg")
