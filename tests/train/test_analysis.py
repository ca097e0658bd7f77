"""What `predict_run` stores for the report."""

import base64
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.train.tiny import tiny_run
from varlearn import metrics
from varlearn.files.checked_json import read_json, read_json_lines
from varlearn.posterior import layer_scales
from varlearn.posterior import load as load_posterior
from varlearn.train import Model, fit, load_run_predictions, predict_run
from varlearn.train.analysis import SIDE, _small

pytestmark = pytest.mark.usefixtures("tiny_data")


def test_a_classifier_of_images(tmp_path: Path) -> None:
    run = tiny_run("ivon")
    fit(replace(run, data=replace(run.data, ood=("far",))), tmp_path / "run", progress=False)
    predict_run(tmp_path / "run")
    found = read_json(tmp_path / "run" / "analysis.json")
    assert found["facts"] == {"n": 96}
    learned = load_posterior(tmp_path / "run" / "posterior.safetensors")
    assert found["layers"] == [layer._asdict() for layer in layer_scales(learned)]
    curve = found["temperature"]
    assert (curve["split"], curve["examples"], curve["samples"]) == ("test", 48, 8)
    at_mean = load_run_predictions(tmp_path / "run")["test"]["mean"]
    assert curve["points"][0] == [0.0, pytest.approx(metrics.nll(at_mean.log_probs, at_mean.targets))]
    shown = found["examples"]
    assert (shown["kind"], shown["classes"]) == ("image", ["dark", "grey", "light"])
    numbers = [one["index"] for one in shown["sets"]["test"]]
    averaged = load_run_predictions(tmp_path / "run")["test"]["averaged"]
    assert numbers[:4] == [0, 1, 2, 3]
    assert metrics.nll_per_example(averaged.log_probs, averaged.targets).argmax().item() in numbers
    assert averaged.predictive_entropy.argmax().item() in numbers
    assert len(shown["sets"]["far"]) == 4
    assert base64.b64decode(shown["sets"]["far"][0]["png"]).startswith(b"\x89PNG")


def test_a_point_has_examples_alone(tmp_path: Path) -> None:
    fit(tiny_run("sgd"), tmp_path / "run", progress=False)
    predict_run(tmp_path / "run")
    assert set(read_json(tmp_path / "run" / "analysis.json")) == {"examples"}


@pytest.mark.parametrize(
    ("name", "model", "key"), [("line", Model("mlp", 1), "row"), ("letters", Model("gpt2_tiny"), "text")]
)
def test_rows_and_texts(name: str, model: Model, key: str, tmp_path: Path) -> None:
    run = tiny_run("ivon")
    run = replace(run, model=model, data=replace(run.data, name=name, augment=False, context=8, validation=0.25))
    fit(run, tmp_path / "run", progress=False)
    predict_run(tmp_path / "run")
    found = read_json(tmp_path / "run" / "analysis.json")
    assert found["temperature"]["split"] == "validation"
    assert all(key in one for one in found["examples"]["sets"]["test"])
    assert found["examples"]["sets"]["test"]


def test_large_images_are_shrunk_and_small_ones_kept() -> None:
    assert _small(torch.zeros(3, 4 * SIDE, 2 * SIDE, dtype=torch.uint8)).shape == (3, SIDE, SIDE // 2)
    small = torch.randint(256, (1, 8, 8), dtype=torch.uint8)
    assert torch.equal(_small(small), small)


def test_the_memory_of_a_run_is_in_its_timing(tmp_path: Path) -> None:
    for method, copies in (("sgd", 1), ("adamw", 2), ("ivon", 2)):  # momentum; two moments; momentum and h
        fit(tiny_run(method), tmp_path / method, progress=False)
        end = read_json_lines(tmp_path / method / "timing.jsonl").records[-1]
        assert end["event"] == "end"
        assert end["bytes"]["state"] == pytest.approx(copies * end["bytes"]["weights"], rel=0.05)
