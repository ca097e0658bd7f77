"""The pictures of the imports are current, and drawn from what the files import."""

from pathlib import Path

import pytest

from tools.import_graph import DOCS, Picture, draw, imported, levels, pictures, reduced, without_cycles


@pytest.mark.parametrize("picture", pictures(), ids=lambda picture: picture.name)
def test_the_picture_is_current(picture: Picture) -> None:
    stored = (DOCS / picture.name).read_text(encoding="utf-8")
    assert stored == draw(picture), f"docs/{picture.name} shows other imports; run 'make graph'"


def test_imports_are_read_wherever_they_stand(tmp_path: Path) -> None:
    source = tmp_path / "x.py"
    source.write_text("""
import varlearn.a
from varlearn.b import c, function
from varlearn import d
if TYPE_CHECKING:
    from varlearn import hidden
def f():
    from varlearn.e.inner import name
    import torch
    import_module("varlearn.g").h
""")
    known = ["", "a", "b", "b.c", "d", "e", "e.inner", "g", "hidden", "x", "unused"]
    assert imported("x", source, known) == {"a", "b", "b.c", "d", "e.inner", "g"}


def test_arrows_that_follow_from_others_are_left_out() -> None:
    assert reduced({"a": {"b", "c", "d"}, "b": {"c"}, "c": set(), "d": set()}) == {
        "a": {"b", "d"},
        "b": {"c"},
        "c": set(),
        "d": set(),
    }


def test_a_circle_loses_one_arrow() -> None:
    assert without_cycles({"a": {"b"}, "b": {"a"}}) == {"a": {"b"}, "b": set()}


def test_every_importer_is_above_what_it_imports() -> None:
    for picture in pictures():
        graph = reduced(without_cycles(picture.graph))
        level = levels(graph)
        assert all(level[name] > level[one] for name, ones in graph.items() for one in ones)
        assert len(graph) > 10
