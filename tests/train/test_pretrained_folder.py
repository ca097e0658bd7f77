"""Where a pretrained model is looked for, and a whole run that starts from one."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.train.tiny_pretrained import WORDS, write_tiny_bert
from varlearn import data, posterior
from varlearn.data import loading
from varlearn.data.text_sets import Texts
from varlearn.posterior import DiagGaussian, check_fits
from varlearn.train import Data, Evaluate, Model, Optim, Run, Train, fit, predict_inputs, predict_run, score_run
from varlearn.train.build import build_training
from varlearn.train.pretrained_folder import pretrained_folder


def sentences(split: str, root: Path | None) -> Texts:
    """40 sentences of three words, sorted by class, of which the class is whether "good" is the first."""
    texts = [f"{first} {a} {b}" for first in WORDS[:2] for a in WORDS[2:7] for b in WORDS[4:8]]
    return Texts(tuple(texts), torch.tensor([1] * 20 + [0] * 20), ("bad", "good"))


def scores(split: str, root: Path | None) -> Texts:
    found = sentences(split, root)
    return Texts(found.texts, found.targets.float() * 2, (), found.texts)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setitem(loading.TEXTS, "cola", sentences)
    monkeypatch.setitem(loading.TEXTS, "stsb", scores)
    return Run(
        recipe="tiny",
        model=Model("pretrained", classes=2, path=str(write_tiny_bert(tmp_path / "model"))),
        data=Data("cola", batch_size=8, augment=False, context=12, tokens="model", test="dev"),
        optim=Optim("adamw", lr=0.01, beta2=0.99),
        train=Train(epochs=10, warmup=0),
        evaluate=Evaluate(samples=2),
    )


def test_a_run_learns_and_its_posterior_fits_the_model_of_transformers(run: Run, tmp_path: Path) -> None:
    from transformers import AutoModelForSequenceClassification

    fit(run, tmp_path / "run", progress=False)
    predict_run(tmp_path / "run", progress=False)
    found = score_run(tmp_path / "run")
    assert found["mean"]["accuracy"] == 1.0
    assert found["mean"]["matthews"] == found["best_epoch"]["f1"] == 1.0
    short = replace(run, optim=Optim("ivon", lr=0.1, ess=1e6, hess_init=0.01), train=Train(epochs=1, warmup=0))
    learned = posterior.load(fit(short, tmp_path / "ivon", progress=False))
    assert isinstance(learned, DiagGaussian)
    check_fits(learned, AutoModelForSequenceClassification.from_pretrained(run.model.path, num_labels=2))
    (tmp_path / "own.txt").write_text("good a the\nbad film it\n")
    table = predict_inputs(tmp_path / "run", tmp_path / "own.txt", progress=False)
    assert [row[1] for row in table.rows] == ["good", "bad"]


def test_a_regression_learns(run: Run, tmp_path: Path) -> None:
    run = replace(run, data=replace(run.data, name="stsb", context=24), model=replace(run.model, classes=1))
    fit(run, tmp_path / "run", progress=False)
    predict_run(tmp_path / "run", progress=False)
    found = score_run(tmp_path / "run")
    assert found["mean"]["spearman"] > 0.8
    assert found["best_epoch"]["pearson"] >= found["mean"]["pearson"] - 1e-6
    assert found["best_epoch"]["rmse"] <= found["mean"]["rmse"] + 1e-6


def test_the_first_examples_of_sorted_data_are_refused(run: Run) -> None:
    with pytest.raises(ValueError, match="data.subset=10 takes the first examples of cola.* all 'good' there"):
        build_training(replace(run, data=replace(run.data, subset=10)))
    assert len(build_training(replace(run, data=replace(run.data, subset=30)))[0]) == 30


def test_the_tested_split_is_the_runs(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from varlearn.train.build import build_examples

    asked = []
    monkeypatch.setattr(data, "load", lambda name, split, root, **options: asked.append(split) or [])
    monkeypatch.setattr("varlearn.train.build.pretrained_folder", str)
    build_examples(run, "test")
    build_examples(replace(run, data=replace(run.data, test="dev_mismatched")), "test")
    assert asked == ["dev", "dev_mismatched"]


def test_an_installed_package_with_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = tmp_path / "some_model_package" / "weights"
    inside.mkdir(parents=True)
    (tmp_path / "some_model_package" / "__init__.py").write_text("raise RuntimeError('must not be imported')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match="model.path='some_model_package' is a package with 0 models"):
        pretrained_folder("some_model_package")
    (inside / "config.json").write_text("{}")
    (inside / "model.safetensors").write_text("")
    assert pretrained_folder("some_model_package") == str(inside)
    assert "some_model_package" not in sys.modules


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("no_such_package_here", "is no folder and no installed package"),
        ("./nowhere/at/all", "does not exist; give the folder of a model"),
        ("../x", "does not exist"),
    ],
)
def test_what_is_nowhere_is_refused(path: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        pretrained_folder(path)


def test_a_folder_without_a_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has no config.json"):
        pretrained_folder(str(tmp_path))


def test_other_tokens_are_refused(run: Run) -> None:
    from varlearn.train.build import build_model

    train = build_training(run)[0]
    with pytest.raises(ValueError, match="data.tokens='bytes' must be 'model'"):
        build_model(replace(run, data=replace(run.data, tokens="bytes")), train)
