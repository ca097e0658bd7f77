"""Bayesian SAM as a method: its settings, its two passes, and the command line."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.methods.command_line import assert_later_stages_repeat, assert_repeats_after_a_kill, scores, trained
from tests.methods.quadratic import Quadratic
from varlearn import posterior
from varlearn.methods import Facts
from varlearn.methods.bsam import BSAMMethod, BSAMSettings
from varlearn.posterior import DiagGaussian


def test_settings_reach_the_optimizer() -> None:
    facts = Facts(n=10, batch_size=2, steps=3, task="classification", seed=5, max_grad_norm=2.0)
    settings = BSAMSettings(lr=0.3, damping=0.2, rho=0.04, beta1=0.8, beta2=0.95, samples=3)
    group = BSAMMethod(settings).optimizer(nn.Linear(1, 1), facts).param_groups[0]
    expected = {"lr": 0.3, "damping": 0.2, "rho": 0.04, "ess": 10.0, "mc_samples": 3, "max_grad_norm": 2.0}
    assert {name: group[name] for name in expected} == expected
    assert (group["betas"], group["seed"]) == ((0.8, 0.95), 5)


def test_the_first_pass_is_at_a_sample_and_the_second_at_the_perturbed_mean() -> None:
    training: Any = Quadratic(method := BSAMMethod(BSAMSettings(rho=0.1)))  # type: ignore[arg-type]
    training.grad_scale = 1.0
    mean = training.model.weight.item()
    (loss,) = method.gradients(training, torch.ones(1))  # type: ignore[arg-type]
    (first, _, _), (second, _, _) = training.calls
    assert first != mean
    assert loss.item() == pytest.approx(0.5 * (first - 1.0) ** 2)
    assert second == pytest.approx(mean + 0.1 * (first - 1.0) / (1.0 + 8e-4), rel=1e-5)
    assert training.model.weight.item() == mean
    assert training.model.weight.grad.item() == pytest.approx(second - 1.0)


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained("bsam", tmp_path_factory.mktemp("bsam") / "run")


def test_the_command_line_trains_it(straight: Path) -> None:
    assert type(posterior.load(straight / "posterior.safetensors")) is DiagGaussian
    assert scores(straight)["mean"]["accuracy"] > 0.8


def test_a_killed_run_ends_with_the_same_bits(straight: Path, tmp_path: Path) -> None:
    assert_repeats_after_a_kill("bsam", straight, tmp_path)


def test_the_later_stages_repeat_what_train_wrote(straight: Path) -> None:
    assert_later_stages_repeat(straight)
