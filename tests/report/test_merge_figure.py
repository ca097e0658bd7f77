"""Scores over task weights, read back from the artists."""

from __future__ import annotations

from varlearn.report.merge_figure import merge_figure

TWO = [((0.0, 1.0), {"a": 0.5, "b": 0.9}), ((0.5, 0.5), {"a": 0.7, "b": 0.8}), ((1.0, 0.0), {"a": 0.8, "b": 0.6})]


def test_two_models_give_lines_over_the_weight() -> None:
    axis = merge_figure(TWO, ["first", "second"]).axes[0]
    lines = {line.get_label(): line.get_xydata().tolist() for line in axis.lines}
    assert lines["a"] == [[0.0, 0.5], [0.5, 0.7], [1.0, 0.8]]
    assert lines["mean"][1] == [0.5, 0.75]
    assert axis.get_xlabel() == "weight of first"
    one = merge_figure([(weights, {"a": scores["a"]}) for weights, scores in TWO], ["first", "second"])
    assert [line.get_label() for line in one.axes[0].lines] == ["a"]  # its mean would be the same line


def test_more_models_show_every_place_and_the_best() -> None:
    places = [((1.0, 0.0, 0.0), {"a": 0.5, "b": 0.9}), ((0.0, 0.5, 0.5), {"a": 0.9, "b": 0.8})]
    axis = merge_figure(places, ["x", "y", "z"]).axes[0]
    assert [line.get_linewidth() for line in axis.lines] == [0.5, 2.0]
    assert axis.get_title() == "best mean: x 0, y 0.5, z 0.5"
