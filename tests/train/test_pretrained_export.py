"""An exported run is a model of transformers, with the posterior beside it."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.train.test_pretrained_folder import run, scores, sentences  # noqa: F401
from varlearn import posterior
from varlearn.cli import main
from varlearn.train import Optim, Run, RunFolderError, Train, export_pretrained, fit
from varlearn.train.build import build_examples, build_model


@pytest.fixture
def short(run: Run) -> Run:  # noqa: F811
    return replace(run, optim=Optim("ivon", lr=0.1, ess=1e6, hess_init=0.01), train=Train(epochs=1, warmup=0))


def test_from_pretrained_gives_the_posteriors_mean(short: Run, tmp_path: Path) -> None:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    fit(short, tmp_path / "run", progress=False)
    folder = export_pretrained(tmp_path / "run", tmp_path / "out" / "model")
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    learned = posterior.load(folder / "posterior.safetensors", model)
    assert all(torch.equal(value, learned.mean[name]) for name, value in model.named_parameters())
    assert AutoTokenizer.from_pretrained(folder)("good film")["input_ids"][1:3] == [5, 7]
    again = replace(short, model=replace(short.model, path=str(folder)))  # another run starts from it
    start = build_model(again, build_examples(again, "train"))
    assert torch.equal(start.classifier.weight, model.classifier.weight)
    with pytest.raises(RunFolderError, match="is in use; give another folder"):
        export_pretrained(tmp_path / "run", folder)
    assert main(["export", str(tmp_path / "run"), "--out", str(tmp_path / "second")]) == 0
    assert (tmp_path / "second" / "model.safetensors").exists()


def test_a_regression_has_one_output(short: Run, tmp_path: Path) -> None:
    values = replace(short, data=replace(short.data, name="stsb", context=24))  # classes stays 2, which is not read
    fit(values, tmp_path / "run", progress=False)
    folder = export_pretrained(tmp_path / "run", tmp_path / "exported")
    assert posterior.load(folder / "posterior.safetensors").mean["classifier.bias"].shape == (1,)


def test_what_cannot_be_exported_is_refused(short: Run, tmp_path: Path) -> None:
    with pytest.raises(RunFolderError):
        export_pretrained(tmp_path / "nothing", tmp_path / "exported")
    fit(short, tmp_path / "run", progress=False)
    (tmp_path / "run" / "posterior.safetensors").unlink()
    with pytest.raises(RunFolderError, match="is missing: the run is not finished"):
        export_pretrained(tmp_path / "run", tmp_path / "exported")
    assert not (tmp_path / "exported").exists()
