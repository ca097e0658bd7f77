"""The facts in the folder of a run, and the advice beside them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from varlearn.advice import findings
from varlearn.train import (
    Data,
    Evaluate,
    Model,
    Optim,
    Run,
    Train,
    advise_run,
    facts_of_run,
    fit,
    predict_run,
    score_run,
)

RUN = Run(
    model=Model("mlp", hidden=(20,)),
    data=Data("digits", augment=False, validation=0.2, subset=500),
    optim=Optim("ivon", lr=1.0, ess=4_000.0, hess_init=0.1, beta2=0.998),
    train=Train(steps=400, log_every=20, eval_every=0, checkpoint_every=0),
    evaluate=Evaluate(samples=8),
)


def made(run: Run, out: Path) -> Path:
    fit(run, out, progress=False)
    predict_run(out, progress=False)
    return out


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(RUN, tmp_path_factory.mktemp("runs") / "x")


def test_the_facts_are_those_of_the_files(trained: Path) -> None:
    facts, scores = facts_of_run(trained), score_run(trained)
    assert (facts.task, facts.classes, facts.n, facts.batch_size) == ("classification", 10, 400, 50)
    assert (facts.step, facts.steps, facts.samples, facts.skipped_steps) == (400, 400, 8, 0)
    assert (facts.ess, facts.hess_init, facts.beta2) == (4_000.0, 0.1, 0.998)
    assert facts.params == 64 * 20 + 20 + 20 * 10 + 10
    assert facts.nll_mean == pytest.approx(scores["validation"]["mean"]["nll"])
    assert facts.nll_averaged == facts.nll_validation == pytest.approx(scores["validation"]["averaged"]["nll"])
    assert facts.nll_test == pytest.approx(scores["averaged"]["nll"])
    assert facts.lr is not None
    assert facts.lr_peak is not None
    assert 0.0 < facts.lr < 0.01 < 0.9 < facts.lr_peak <= 1.0
    assert facts.input_shift is not None
    assert facts.input_shift < 0.2
    assert facts.disagreement is not None
    assert facts.disagreement > 0.0


def test_the_advice_is_written(trained: Path) -> None:
    assert advise_run(trained) == ()
    written = json.loads((trained / "advice.json").read_text())
    assert written["facts"]["n"] == 400
    assert written["findings"] == []


@pytest.mark.filterwarnings("ignore:The learning rate is still:UserWarning")
def test_a_constant_learning_rate_is_found(tmp_path: Path) -> None:
    out = made(replace(RUN, train=replace(RUN.train, schedule="constant")), tmp_path / "x")
    assert [finding.code for finding in advise_run(out)] == ["no_schedule"]
    assert json.loads((out / "advice.json").read_text())["findings"][0]["severity"] == "warning"


def test_a_point_is_not_judged_as_a_posterior(tmp_path: Path) -> None:
    out = made(replace(RUN, optim=Optim("sgd", lr=0.1), evaluate=Evaluate(samples=1)), tmp_path / "x")
    facts = facts_of_run(out)
    assert facts.samples is None
    assert facts.nll_mean is None
    assert advise_run(out) == ()


def test_a_run_that_has_not_begun_has_no_facts(tmp_path: Path) -> None:
    from varlearn.train import to_json

    (tmp_path / "config.json").write_text(to_json(RUN))
    assert advise_run(tmp_path) == ()


def test_a_run_that_explodes_at_once_is_told_so(tmp_path: Path) -> None:
    run = replace(RUN, optim=replace(RUN.optim, lr=300.0), data=replace(RUN.data, validation=0.0))
    out = made(replace(run, train=replace(RUN.train, steps=200)), tmp_path / "x")
    assert [finding.code for finding in advise_run(out)] == ["hess_runaway"]


def test_the_loss_is_known_to_be_a_mean(trained: Path) -> None:
    facts = facts_of_run(trained)
    assert facts.loss_growth_with_batch == 1.0  # so that a loss that explodes in the first steps is not taken for a sum
    assert findings(replace(facts, loss_first=133.0)) == ()
    assert findings(replace(facts, loss_first=133.0, loss_growth_with_batch=None)) != ()
