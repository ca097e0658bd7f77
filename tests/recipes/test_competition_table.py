"""Table 14: its lines, and agreement with a reference of known distance."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from varlearn.recipes import digits
from varlearn.recipes.competition_table import COLUMNS, competition
from varlearn.recipes.hmc_reference import PRIOR_PRECISIONS, reference_run
from varlearn.recipes.jobs import collect, jobs, run_all
from varlearn.recipes.tables import Line, Table
from varlearn.train import load_run_predictions


def test_both_readings_of_the_prior_are_lines() -> None:
    lines = competition("paper").lines
    decays = {line.run.optim.weight_decay for line in lines if line.data == "cifar10"}
    assert decays == {1e-4, 0.2 / 50_000}  # 5 / n and 1 / (5 n)
    assert {line.detail for line in lines if line.data == "cifar10"} == set(PRIOR_PRECISIONS)
    assert {line.run.model.name for line in lines} == {"resnet20_swish", "gru"}
    winner = next(line for line in lines if line.method == "6*ivon-2021")
    assert winner.published["agreement"].mean == 78.7


def test_the_runs_are_those_of_their_recipe_but_for_the_prior() -> None:
    for line in competition("small").lines:
        if line.data == "cifar10":
            recipe = reference_run(line.run.optim.name, "small")
            assert replace(recipe, optim=line.run.optim) == line.run
            assert line.changes == {"optim": {"weight_decay": line.run.optim.weight_decay}}


def test_agreement_with_itself_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = digits("sgd")
    run = replace(run, train=replace(run.train, steps=4, eval_every=0))
    table = Table("competition", "Tiny", COLUMNS, (Line("digits", "mlp", "sgd", "", run, {}, ("averaged",), {}),))
    assert list(run_all(jobs(table, 1, tmp_path), progress=False, device=None, say=lambda words: None)) == []
    own = load_run_predictions(jobs(table, 1, tmp_path)[0].out)["test"]["averaged"].log_probs

    def reference(name: str, root: Any = None) -> torch.Tensor:
        assert name == "digits"
        return torch.cat([own, own])  # longer: the first rows are read

    monkeypatch.setattr(import_module("varlearn.data.hmc_predictives"), "hmc_predictive", reference)
    metrics = collect(table, 1, tmp_path)["lines"][0]["metrics"]
    assert metrics["agreement"]["mean"] == 100.0
    assert metrics["total_variation"]["mean"] == pytest.approx(0.0, abs=1e-6)
