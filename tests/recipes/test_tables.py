"""Tables: every line of the paper that has a recipe, beside the run it comes from."""

import pytest

from varlearn.recipes.tables import TABLES, table


@pytest.mark.parametrize("scale", ["paper", "small"])
@pytest.mark.parametrize("name", TABLES)
def test_lines_point_to_runs_of_their_method(name: str, scale: str) -> None:
    found = table(name, scale)  # type: ignore[arg-type]
    assert found.name == name
    assert found.lines
    for line in found.lines:
        assert line.run.scale == scale
        assert line.run.optim.name == line.method.removesuffix("@mean")
        assert line.path[0] == ("averaged" if line.method == "ivon" else "mean")
        assert {metric.key for metric in found.metrics} <= line.published.keys()


def test_table1_has_the_papers_lines_but_adahessian() -> None:
    assert len(table("table1").lines) == 13 * 4


def test_table3_asks_about_the_set_of_the_line() -> None:
    lines = table("table3", "paper").lines
    assert [(line.method, line.path) for line in lines] == [
        (method, (kind, "ood", outside))
        for outside in ("svhn", "flowers102")
        for method, kind in (("sgd", "mean"), ("ivon", "averaged"))
    ]
    assert [line.path[2] for line in table("table3", "small").lines][::2] == ["svhn-pack", "flowers102-pack"]


def test_table8_changes_h0_alone() -> None:
    lines = table("table8", "paper").lines
    assert [line.run.optim.hess_init for line in lines][:3] == [0.001, 0.002, 0.005]
    assert all(line.changes == {"optim": {"hess_init": line.run.optim.hess_init}} for line in lines)


def test_the_stand_in_of_gpt2_runs_once() -> None:
    assert [line.model for line in table("figure1", "small").lines] == ["gpt2-125m"] * 2
    assert len(table("figure1", "paper").lines) == 6


def test_an_unknown_table_is_refused() -> None:
    with pytest.raises(
        ValueError, match="'table99' is not a table that can be reproduced; choose one of table1, table3"
    ):
        table("table99")
