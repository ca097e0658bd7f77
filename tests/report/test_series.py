"""Runs that belong together, and their colours."""

import pytest

from varlearn.report.run_results import RunResults
from varlearn.report.series import all_series, best_of_each_method, grouped, in_order, mean_and_spread


def run(method: str, seed: int = 0, nll: float = 1.0, **optim: float) -> RunResults:
    config = {"seed": seed, "optim": {"name": method, **optim}}
    kinds = ("mean", "averaged") if method in ("ivon", "vadamw") else ("mean",)
    return RunResults(f"{method}-{seed}", method, config=config, metrics={kind: {"nll": nll} for kind in kinds})


def test_seeds_belong_together() -> None:
    groups = grouped([run("ivon", 0), run("sgd"), run("ivon", 1)])
    assert [(group.label, len(group.runs)) for group in groups] == [("IVON", 2), ("SGD", 1)]


def test_a_method_has_its_colour_whoever_else_is_there() -> None:
    for methods in (["ivon", "adamw", "sgd"], ["sgd", "ivon"], ["mine", "sgd"], ["adamw", "yours", "mine", "vadamw"]):
        colors = {group.first.method: group.color for group in grouped([run(method) for method in methods])}
        fixed = {"ivon": 0, "adamw": 1, "sgd": 2, "vadamw": 3}
        assert all(colors[method] == fixed[method] for method in methods if method in fixed)
        assert len(set(colors.values())) == len(methods)


def test_settings_that_differ_are_named() -> None:
    groups = grouped([run("ivon", lr=0.1), run("ivon", lr=0.2), run("sgd", lr=0.1)])
    assert [group.label for group in groups] == ["IVON, lr 0.1", "IVON, lr 0.2", "SGD"]
    assert groups[0].color == groups[1].color
    assert [group.label for group in grouped([run("ivon", lr=0.1), run("ivon", lr=0.2)])] == ["lr 0.1", "lr 0.2"]


def test_a_posterior_has_two_kinds_and_a_point_one() -> None:
    series = all_series(grouped([run("ivon"), run("sgd")]))
    assert [(one.label, one.dash) for one in series] == [("IVON", 0), ("IVON at the mean", 1), ("SGD", 0)]
    assert series[0].color == series[1].color


def test_many_groups_are_sorted_by_their_nll() -> None:
    runs = [run("ivon", nll=nll, lr=nll) for nll in (5.0, 3.0, 4.0, 1.0, 2.0, 7.0, 6.0)]
    assert [group.label for group in in_order(grouped(runs))] == [f"lr {k}.0" for k in range(1, 8)]
    assert in_order(grouped(runs[:6]))[0].label == "lr 5.0"
    best = best_of_each_method(all_series(grouped([*runs, run("sgd", nll=9.0)])))
    assert [one.label for one in best] == ["IVON, lr 1.0", "SGD"]


def test_values_that_are_no_numbers_are_left_out() -> None:
    bad = RunResults("x", "sgd", metrics={"mean": {"nll": "nan", "auroc": None, "ood": {"noise": {"auroc": 0.5}}}})
    (one,) = all_series(grouped([bad]))
    assert one.values("nll") == one.values("auroc") == one.values("ood", "other", "auroc") == []
    assert one.values("ood", "noise", "auroc") == [0.5]
    assert mean_and_spread([1.0, 2.0, 3.0]) == (2.0, pytest.approx(1.0))
