"""Tables: every line of the paper that has a recipe, beside the run it comes from."""

import pytest

from varlearn.methods import named
from varlearn.methods.sae import SAESettings
from varlearn.recipes.optimizer_tables import COST_KEYS
from varlearn.recipes.tables import TABLES, table


@pytest.mark.parametrize("scale", ["paper", "small"])
@pytest.mark.parametrize("name", TABLES)
def test_lines_point_to_runs_of_their_method(name: str, scale: str) -> None:
    found = table(name, scale)  # type: ignore[arg-type]
    assert found.name == name
    assert found.lines
    for line in found.lines:
        assert line.run.scale == scale
        assert line.run.optim.name == line.method.removesuffix("@mean").rpartition("*")[2]
        if named(line.run.optim.name).averages:
            assert line.path[0] in (("mean", "best_epoch") if line.method.endswith("@mean") else ("averaged",))
        lacking = ("table2", "table3", "table4", "competition")  # have lines or columns that the paper has not
        if name not in lacking and line.published:
            assert {metric.key for metric in found.metrics} - COST_KEYS <= line.published.keys()


def test_table1_has_all_of_the_papers_lines() -> None:
    lines = table("table1", "paper").lines
    assert len(lines) == 13 * 4 + 12
    rows = [line for line in lines if line.method == "adahessian"]
    assert len({(line.data, line.model) for line in rows}) == 12
    for line in rows:
        optim = line.run.optim
        assert (optim.lr, optim.weight_decay, optim.beta1, optim.beta2) == (0.05, 2e-4, 0.9, 0.999)
        assert (optim.hessian_power, line.path) == (1.0, ("mean",))  # type: ignore[attr-defined]


def test_table2_has_each_method_beside_its_mean_and_ensembles() -> None:
    lines = {line.method: line for line in table("table2", "paper").lines}
    assert {"sgd", "adamw", "ivon@mean", "ivon", "vadamw@mean", "vadamw", "5*sgd", "5*ivon"} <= lines.keys()
    assert lines["sgd"].run.optim.lr == 0.2  # Appendix C.3, unlike Table 1
    assert lines["ivon"].published["nll"].mean == 0.219
    assert lines["5*ivon"].published["nll"].mean == 0.179
    assert (lines["5*ivon"].detail, lines["sgd"].detail) == ("320 test passes", "1 test pass")
    assert all(line.run.data.ood_own_statistics for line in lines.values())
    sae = lines["sae"]
    assert sae.detail == f"{sae.run.optim.members} test passes"  # type: ignore[attr-defined]
    assert sae.run.optim.lr == SAESettings().lr  # Adam's, not SGD's


def test_table3_asks_about_the_set_of_the_line() -> None:
    lines = table("table3", "paper").lines
    assert list(dict.fromkeys(line.path[2] for line in lines)) == ["svhn", "flowers102", "tinyimagenet", "cifar100"]
    assert all(line.path[:2] == ("averaged", "ood") for line in lines)
    known = {(line.method, line.path[2]): line.published for line in lines if line.published}
    assert known["ivon", "svhn"]["auroc"].mean == 89.2
    assert known["sgd", "flowers102"]["fpr95_paper"].mean == 22.1
    small = dict.fromkeys(line.path[2] for line in table("table3", "small").lines)
    assert list(small) == ["svhn-pack", "flowers102-pack", "tinyimagenet-pack", "cifar100-pack"]


def test_table8_changes_h0_alone() -> None:
    lines = table("table8", "paper").lines
    assert [line.run.optim.hess_init for line in lines][:3] == [0.001, 0.002, 0.005]
    assert all(line.changes == {"optim": {"hess_init": line.run.optim.hess_init}} for line in lines)


def test_the_stand_in_of_gpt2_runs_once() -> None:
    assert [line.model for line in table("figure1", "small").lines] == ["gpt2-125m"] * 2
    assert len(table("figure1", "paper").lines) == 6


def test_an_unknown_table_is_refused() -> None:
    with pytest.raises(
        ValueError, match="'table99' is not a table that can be reproduced; choose one of table1, table2"
    ):
        table("table99")
