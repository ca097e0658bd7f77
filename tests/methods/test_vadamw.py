"""Variational AdamW as a method: its settings, its posterior, and a run of the command line from end to end."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.methods.quadratic import FACTS, assert_learns_a_gaussian
from varlearn import DiagGaussian, VAdamW, posterior
from varlearn.cli import main
from varlearn.data import Examples
from varlearn.methods import Facts, Optim, settings_for
from varlearn.methods.vadamw import VAdamWMethod, VAdamWSettings
from varlearn.optim.prior_widths import parameter_groups, suggested_lr
from varlearn.train import Run
from varlearn.train.build import build_parts
from varlearn.train.config import Data, Model, Train, to_json
from varlearn.train.processes import Processes
from varlearn.train.training import Training

REPOSITORY = Path(__file__).parents[2]
FLAGS = ["--train.steps", "200", "--train.eval_every", "100", "--train.checkpoint_every", "30"]
FLAGS += ["--evaluate.samples", "8", "--evaluate.subset", "400", "--quiet"]


def test_settings_and_facts_reach_the_optimizer() -> None:
    settings = VAdamWSettings(lr=0.3, beta1=0.8, beta2=0.95, weight_decay=0.1, ess=7.0, samples=3, prior_width=0.2)
    optimizer = VAdamWMethod(settings).optimizer(nn.Linear(1, 1), FACTS)
    assert isinstance(optimizer, VAdamW)
    expected = {"lr": 0.3, "betas": (0.8, 0.95), "weight_decay": 0.1, "ess": 7.0, "mc_samples": 3, "prior_width": 0.2}
    expected |= {"n": 10, "batch_size": 2, "seed": 5, "max_grad_norm": 2.0, "anneal": False}
    (group,) = optimizer.param_groups
    assert {name: group[name] for name in expected} == expected


def test_the_defaults_are_adamw_s_with_a_rate_from_the_weights_and_lambda_annealed() -> None:
    net = nn.Linear(8, 8)
    (group,) = VAdamWMethod(VAdamWSettings()).optimizer(net, FACTS).param_groups
    (expected,) = VAdamW.for_model(net, n=10, batch_size=2, steps=3).param_groups
    assert {name: group[name] for name in ("lr", "betas", "weight_decay", "prior_width", "ess", "anneal", "steps")} == {
        name: expected[name] for name in ("lr", "betas", "weight_decay", "prior_width", "ess", "anneal", "steps")
    }
    assert (group["betas"], group["weight_decay"], group["ess"], group["steps"]) == ((0.9, 0.999), 0.01, 10_000.0, 3)
    assert group["lr"] == pytest.approx(0.15 * float(net.weight.detach().square().mean().sqrt()))


def test_auto_is_this_method_and_a_run_stores_its_name() -> None:
    assert Run().optim == Run(optim=Optim("auto")).optim == Run(optim=Optim("vadamw")).optim == VAdamWSettings()
    assert json.loads(to_json(Run()))["optim"]["name"] == "vadamw"
    assert settings_for(Optim("auto", lr=0.1, beta1=0.8)) == VAdamWSettings(lr=0.1, beta1=0.8)


def test_a_run_takes_the_rate_of_the_first_weights_as_its_peak() -> None:
    run = Run(model=Model("mlp", 2, hidden=(4,)), data=Data(batch_size=2), train=Train(steps=10, warmup=0))
    examples = Examples(torch.ones(4, 3), torch.tensor([0, 1, 0, 1]), ("a", "b"), "table")
    alone = Processes(0, 1, torch.device("cpu"))
    training = Training(build_parts(run, examples, alone), alone)
    peak = suggested_lr(training.model)
    assert training.lr() == peak
    for _ in range(5):
        training.gradients()
        training.update()
    assert training.lr() == pytest.approx(0.5 * peak)
    resumed = Training(build_parts(run, examples, alone), alone)
    assert resumed.lr() != peak  # other initial weights
    resumed.load_state_dict(training.state_dict())
    assert resumed.lr() == training.lr()


@pytest.mark.parametrize("matrices_only", [False, True])
def test_embeddings_have_their_own_width_and_vectors_do_not_decay_where_matrices_alone_do(matrices_only: bool) -> None:
    net = nn.Sequential(nn.Embedding(5, 3), *[nn.Linear(3, 3) for _ in range(4)])
    groups = VAdamWMethod(VAdamWSettings(matrices_only=matrices_only)).optimizer(net, FACTS).param_groups
    found = [(len(group["params"]), group["weight_decay"]) for group in groups]
    assert found == [(1, 0.01), *([(4, 0.01), (4, 0.0)] if matrices_only else [(8, 0.01)])]
    passes = FACTS.steps * FACTS.batch_size / FACTS.n
    widths = [group["prior_width"] for group in parameter_groups(net, passes)]
    assert [group["prior_width"] for group in groups] == [widths[0], *[widths[1]] * (len(groups) - 1)]
    assert widths[0] > widths[1]


@pytest.mark.parametrize("width", [0.0, -1.0, float("nan"), "wide"])
def test_a_wrong_width_is_refused(width: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="optim.prior_width="):
        VAdamWSettings(prior_width=width)


def test_tokens_count_for_a_text() -> None:
    facts = Facts(n=10_000, batch_size=256, steps=50, task="language")
    (group,) = VAdamWMethod(VAdamWSettings()).optimizer(nn.Linear(1, 1), facts).param_groups
    assert (group["n"], group["batch_size"]) == (10_000, 256)


def test_the_posterior_and_the_diagnostics_are_the_optimizer_s() -> None:
    assert_learns_a_gaussian(VAdamWMethod(VAdamWSettings()), steps=3)


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("vadamw") / "run"
    assert main(["train", "digits-vadamw", *FLAGS, "--out", str(out)]) == 0
    return out


def test_the_command_line_trains_it(straight: Path) -> None:
    found = posterior.load(straight / "posterior.safetensors")
    assert isinstance(found, DiagGaussian)
    assert all(bool((std > 0).all()) for std in found.std.values())
    metrics = json.loads((straight / "metrics.json").read_text())
    assert metrics["mean"]["accuracy"] > 0.8
    assert metrics["averaged"]["accuracy"] > 0.8
    assert metrics["averaged"] != metrics["mean"]
    records = [json.loads(line) for line in (straight / "log.jsonl").read_text().splitlines()]
    logged = [record["vadamw"] for record in records if "vadamw" in record]
    assert [each["ess"] for each in logged] == sorted((each["ess"] for each in logged), reverse=True)
    assert logged[-1]["effective_params"] > 0.0


def test_a_killed_run_ends_with_the_same_bits(straight: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.methods.kills", str(tmp_path), "vadamw", "--", *FLAGS]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    for file in ("config.json", "log.jsonl", "posterior.safetensors", "predictions.safetensors", "metrics.json"):
        assert (tmp_path / "vadamw" / file).read_bytes() == (straight / file).read_bytes(), file


def test_the_later_stages_repeat_what_train_wrote(straight: Path, tmp_path: Path) -> None:
    files = ("predictions.safetensors", "metrics.json")
    before = [(straight / file).read_bytes() for file in files]
    for file in files:
        (straight / file).unlink()
    assert main(["predict", str(straight), "--quiet"]) == 0
    assert main(["score", str(straight)]) == 0
    assert [(straight / file).read_bytes() for file in files] == before
    assert main(["report", str(straight), "--out", str(tmp_path / "report")]) == 0
    assert "VAdamW" in next((tmp_path / "report").glob("*.html")).read_text()
