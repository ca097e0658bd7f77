"""The tables about optimizers: their lines, beside the paper, as commands, and one of them run."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from varlearn.cli.overrides import laid_over
from varlearn.methods import METHODS
from varlearn.recipes import recipe
from varlearn.recipes.jobs import collect, finish, jobs
from varlearn.recipes.optimizer_tables import with_sgd_epochs
from varlearn.recipes.tables import table
from varlearn.train.config import Data, Evaluate, Model, Train


@pytest.mark.parametrize("scale", ["small", "paper"])
@pytest.mark.parametrize("name", ["estimators", "cost"])
def test_the_command_line_makes_the_runs_of_the_lines(name: str, scale: str) -> None:
    for line in table(name, scale).lines:  # type: ignore[arg-type]
        assert laid_over(recipe(line.run.recipe, scale), line.changes) == line.run  # type: ignore[arg-type]


def test_estimators_are_ivons_with_the_papers_figures() -> None:
    lines = table("estimators", "paper").lines
    found = {line.run.optim.hess_approx: line.published for line in lines}  # type: ignore[attr-defined]
    assert list(found) == ["squared_gradient", "gauss_newton", "reparam", "hutchinson"]
    memory = {name: figures["memory"].mean for name, figures in found.items() if figures}
    assert memory == {"squared_gradient": 363.0, "gauss_newton": 645.0, "reparam": 363.0}
    assert {line.method for line in lines} == {"ivon"}
    assert {line.run.optim.lr for line in lines} == {0.2}


def test_cost_has_every_method_and_at_the_papers_scale_gpt2() -> None:
    assert [line.method for line in table("cost", "small").lines] == list(METHODS)
    lines = table("cost", "paper").lines
    assert {line.model for line in lines} == {"resnet20", "gpt2-125m", "gpt2-355m"}
    hours = {(line.model, line.method): line.published["hours"].mean for line in lines if line.published}
    assert hours["resnet20", "vogn"] == 0.68
    assert hours["gpt2-355m", "ivon"] == 44.7


def test_an_epoch_is_counted_in_those_of_sgd_on_the_same_network() -> None:
    def line(method: str, model: str, seconds: float | None) -> dict:
        empty = {"mean": None, "std": None, "values": []}
        return {
            "method": method,
            "model": model,
            "metrics": {"seconds_per_epoch": {"mean": seconds}, "sgd_epochs": empty},
        }

    lines = [line("sgd", "a", 2.0), line("vogn", "a", 5.0), line("ivon", "b", 5.0), line("bsam", "a", None)]
    with_sgd_epochs(lines)
    assert [each["metrics"]["sgd_epochs"]["mean"] for each in lines] == [1.0, 2.5, None, None]


def test_time_and_memory_are_gathered(tmp_path: Path) -> None:
    whole = table("cost", "small")
    tiny = {
        "model": Model("mlp", 10, hidden=()),
        "data": Data("digits", subset=200, batch_size=20, augment=False),
        "train": Train(epochs=2, log_every=5),
        "evaluate": Evaluate(samples=2, subset=50),
    }
    lines = tuple(
        replace(line, run=replace(line.run, **tiny)) for line in whole.lines if line.method in ("sgd", "vogn")
    )
    wanted = replace(whole, lines=lines)
    for job in jobs(wanted, 1, tmp_path):
        finish(job, progress=False)
    found = {line["method"]: line["metrics"] for line in collect(wanted, 1, tmp_path)["lines"]}
    assert found["sgd"]["sgd_epochs"]["mean"] == 1.0
    assert found["vogn"]["sgd_epochs"]["mean"] > 0.0
    assert found["vogn"]["memory"]["mean"] > 0.01
    assert json.loads((tmp_path / "results.json").read_text())["table"] == "cost"
