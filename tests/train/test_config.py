"""Runs as JSON: what comes back is what was written, and what is wrong is named."""

import json
from dataclasses import replace

import pytest

from varlearn.train.config import Data, Evaluate, Model, Optim, Run, Train, from_json, to_json

FULL = Run(
    recipe="x",
    scale="paper",
    seed=7,
    model=Model("mlp", 3, hidden=(4, 5), compile=True),
    data=Data("digits", subset=5, validation=0.2, ood=("mnist", "svhn")),
    optim=Optim("sgd", lr=1.0, ess=3.0, clip_radius=1e-3),
    train=Train(steps=3, max_grad_norm=1.0, eval_every=0),
    evaluate=Evaluate(samples=2, subset=9),
)


@pytest.mark.parametrize("run", [Run(), FULL, replace(FULL, optim=Optim(lr=2, ess=10))])
def test_a_run_comes_back(run: Run) -> None:
    again = from_json(to_json(run))
    assert again == run
    assert to_json(again) == to_json(from_json(to_json(again)))


def test_equal_runs_are_equal_files() -> None:
    assert to_json(from_json(to_json(FULL))) == to_json(FULL)


def changed(path: str, value: object) -> str:
    values = json.loads(to_json(Run()))
    inner = values
    *parents, last = path.split(".")
    for key in parents:
        inner = inner[key]
    inner[last] = value
    return json.dumps(values)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("optim.learning", 1, r"optim.learning is not a setting of a run; known are"),
        ("optim.hess_int", 1, r"optim.hess_int is not a setting of a run; did you mean optim.hess_init\?"),
        ("optim.lr", "fast", r"optim.lr='fast' must be of type float \| None, not str; convert it"),
        ("optim.name", "ivn", r"optim.name='ivn' must be one of ivon, adamw, sgd, vadamw, .*; did you mean 'ivon'\?"),
        ("train.epochs", 1.5, r"train.epochs=1.5 must be of type int, not float"),
        ("train.epochs", 0, r"train.epochs=0 must be >= 1; one pass"),
        ("data.augment", 1, r"data.augment=1 must be of type bool"),
        ("data.ood", ["a", 3], r"data.ood=\('a', 3\) must be of type tuple\[str, ...\]"),
        ("model", 3, r"model=3 must be an object of settings"),
        ("seed", -1, r"seed=-1 must be >= 0"),
        ("optim.beta2", 1.0, r"optim.beta2=1.0 must be >= 0 and < 1"),
        ("optim.lr", float("nan"), r"optim.lr=nan must be >= 0 and finite"),
        ("model.hidden", [4, 0], r"model.hidden=\(4, 0\) must be widths >= 1"),
    ],
)
def test_a_wrong_setting_is_named(path: str, value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_json(changed(path, value))


def test_a_run_is_an_object() -> None:
    with pytest.raises(ValueError, match="a run is a JSON object, not a list"):
        from_json("[]")


def test_validation_is_a_share_or_a_whole_number() -> None:
    assert Data(validation=100) == Data(validation=100.0)
    assert to_json(Run(data=Data(validation=100))) == to_json(from_json(to_json(Run(data=Data(validation=100)))))
    assert from_json('{"data": {}}').data.validation == 0
    for bad in (-0.1, 1.5, -1):
        with pytest.raises(ValueError, match="data.validation=.* must be a share between 0 and 1, or a whole number"):
            Data(validation=bad)
