"""Predictions and scores of a run, against predictions made by hand, and each stage alone."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.train.tiny import load, tiny_run
from varlearn import metrics, posterior
from varlearn.files.checked_json import read_json
from varlearn.posterior import CorruptFileError
from varlearn.prediction import predict
from varlearn.train import Model, Run, RunFolderError, fit, load_run_predictions, predict_run, score_run
from varlearn.train.build import build_batches, build_model

pytestmark = pytest.mark.usefixtures("tiny_data")


def with_ood(run: Run) -> Run:
    return replace(run, data=replace(run.data, ood=("far",)))


@pytest.fixture
def trained(tmp_path: Path, tiny_data: None) -> Path:
    fit(with_ood(tiny_run("ivon")), tmp_path / "run", progress=False)
    return tmp_path / "run"


def test_predictions_are_those_of_the_posterior(trained: Path) -> None:
    assert predict_run(trained) == trained / "predictions.safetensors"
    found = load_run_predictions(trained)
    assert list(found) == ["test", "far"]
    run, test = with_ood(tiny_run("ivon")), load("blobs", "test")
    model, q = build_model(run, test), posterior.load(trained / "posterior.safetensors")
    for name, distribution in (("averaged", q), ("mean", q.at_mean())):  # type: ignore[union-attr]
        by_hand = predict(model, distribution, build_batches(run, test, train=False), samples=4, seed=0)
        assert torch.equal(found["test"][name].log_probs, by_hand.log_probs)
        assert torch.equal(found["test"][name].targets, test.targets)
    far = replace(load("far", "test"), mean=test.mean, std=test.std)  # as the network is used to
    by_hand = predict(model, q, build_batches(run, far, train=False), samples=4, seed=0)
    assert torch.equal(found["far"]["averaged"].log_probs, by_hand.log_probs)


def test_scores(trained: Path) -> None:
    predict_run(trained)
    scores = score_run(trained)
    assert read_json(trained / "metrics.json") == scores
    averaged = load_run_predictions(trained)["test"]["averaged"]
    assert scores["averaged"]["nll"] == metrics.nll(averaged.log_probs, averaged.targets)
    assert scores["averaged"]["accuracy"] == metrics.accuracy(averaged.log_probs, averaged.targets)
    assert scores["mean"] != scores["averaged"]
    assert set(scores["mean"]) == {
        "accuracy", "top5_accuracy", "nll", "scaled_nll", "ece", "brier", "auroc", "aurc", "matthews",
        "examples", "ood",
    }  # fmt: skip
    assert 0.5 < scores["averaged"]["ood"]["far"]["auroc"] <= 1.0
    last = json.loads((trained / "log.jsonl").read_text().splitlines()[-1])["eval"]
    assert scores["mean"]["nll"] == pytest.approx(last["nll"], rel=1e-5)
    assert scores["mean"]["accuracy"] == last["accuracy"]


def test_each_stage_can_be_repeated(trained: Path) -> None:
    predict_run(trained)
    first = (trained / "predictions.safetensors").read_bytes()
    score_run(trained)
    predict_run(trained)
    assert (trained / "predictions.safetensors").read_bytes() == first


@pytest.mark.parametrize(
    ("name", "model", "keys"),
    [
        ("line", Model("mlp", hidden=(8,)), {"nll", "rmse", "crps", "coverage90", "pearson", "spearman", "examples"}),
        ("letters", Model("gpt2_tiny"), {"nll", "perplexity", "tokens"}),
    ],
)
def test_regression_and_language(name: str, model: Model, keys: set[str], tmp_path: Path) -> None:
    run = tiny_run("ivon", steps=30)
    run = replace(run, model=model, data=replace(run.data, name=name, context=8, augment=False))
    fit(run, tmp_path / "run", progress=False)
    predict_run(tmp_path / "run")
    scores = score_run(tmp_path / "run")
    assert set(scores["mean"]) == set(scores["averaged"]) == keys
    last = json.loads((tmp_path / "run" / "log.jsonl").read_text().splitlines()[-1])["eval"]
    assert scores["mean"]["nll"] == pytest.approx(last["nll"], rel=1e-5)
    if name == "letters":
        assert scores["mean"]["perplexity"] == pytest.approx(math.exp(scores["mean"]["nll"]))


def test_a_point_has_no_other_average(tmp_path: Path) -> None:
    fit(tiny_run("sgd"), tmp_path / "run", progress=False)
    predict_run(tmp_path / "run")
    scores = score_run(tmp_path / "run")
    assert scores["mean"] == scores["averaged"]


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"config.json is missing.*train first"):
        predict_run(tmp_path)
    with pytest.raises(RunFolderError, match=r"predictions.safetensors is missing; predict first"):
        score_run(tmp_path)
    fit(tiny_run(), tmp_path / "run", progress=False)
    (tmp_path / "run" / "posterior.safetensors").unlink()
    with pytest.raises(RunFolderError, match=r"posterior.safetensors is missing: the run is not finished"):
        predict_run(tmp_path / "run")


def test_damage_is_noticed(trained: Path) -> None:
    predict_run(trained)
    for name, stage in (("predictions.safetensors", score_run), ("posterior.safetensors", predict_run)):
        content = bytearray((trained / name).read_bytes())
        content[-1] ^= 1
        (trained / name).write_bytes(content)
        with pytest.raises(CorruptFileError, match=name):
            stage(trained)


def test_another_file_in_place_of_predictions(trained: Path) -> None:
    (trained / "predictions.safetensors").write_bytes((trained / "posterior.safetensors").read_bytes())
    with pytest.raises(RunFolderError, match=r"'varlearn.posterior'.*predict again"):
        score_run(trained)


def test_out_of_domain_sets_are_for_images(tmp_path: Path) -> None:
    run = with_ood(tiny_run(steps=1))
    run = replace(run, model=Model("mlp"), data=replace(run.data, name="line", augment=False))
    fit(run, tmp_path / "run", progress=False)
    with pytest.raises(ValueError, match=r"data.ood=\('far',\) is for images; leave it empty for line"):
        predict_run(tmp_path / "run")


def test_validation_and_test_are_scored_apart(tmp_path: Path) -> None:
    run = with_ood(tiny_run("ivon"))
    run = replace(run, data=replace(run.data, validation=0.25))
    fit(run, tmp_path / "run", progress=False)
    predict_run(tmp_path / "run")
    scores = score_run(tmp_path / "run")
    assert read_json(tmp_path / "run" / "metrics.json") == scores
    assert scores["mean"]["examples"] == 48
    assert scores["validation"]["mean"]["examples"] == 24
    assert set(scores["mean"]["ood"]) == {"far"}
    assert "ood" not in scores["validation"]["mean"]
    learned = posterior.load(tmp_path / "run" / "posterior.safetensors")
    assert scores["temperature"] == learned.temperature  # type: ignore[union-attr]
    assert scores["validation"]["averaged"]["nll"] <= scores["validation"]["mean"]["nll"]
    last = json.loads((tmp_path / "run" / "log.jsonl").read_text().splitlines()[-1])
    assert last["split"] == "validation"
    assert scores["validation"]["mean"]["nll"] == pytest.approx(last["eval"]["nll"], rel=1e-5)


def test_a_point_has_no_temperature(tmp_path: Path) -> None:
    run = tiny_run("sgd")
    fit(replace(run, data=replace(run.data, validation=10)), tmp_path / "run", progress=False)
    predict_run(tmp_path / "run")
    assert score_run(tmp_path / "run")["temperature"] is None


@pytest.mark.parametrize("name", ["line", "letters"])
def test_validation_of_regressions_and_texts(name: str, tmp_path: Path) -> None:
    run = tiny_run("ivon", epochs=1)
    model = Model("mlp", hidden=(4,)) if name == "line" else Model("gpt2_tiny")
    run = replace(run, model=model, data=replace(run.data, name=name, validation=0.25, context=8, augment=False))
    fit(run, tmp_path / "run", progress=False)
    predict_run(tmp_path / "run")
    scores = score_run(tmp_path / "run")
    assert scores["temperature"] >= 0
    assert scores["validation"]["averaged"]["nll"] <= scores["validation"]["mean"]["nll"]
