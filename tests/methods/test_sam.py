"""SAM as a method: its settings, its two passes, and the command line."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.methods.command_line import assert_later_stages_repeat, assert_repeats_after_a_kill, scores, trained
from tests.methods.quadratic import Quadratic
from varlearn import posterior
from varlearn.methods import Facts
from varlearn.methods.sam import SAMMethod, SAMSettings
from varlearn.posterior import Point


def test_settings_reach_the_optimizer() -> None:
    facts = Facts(n=10, batch_size=2, steps=3, task="classification", seed=5, max_grad_norm=2.0)
    group = SAMMethod(SAMSettings(lr=0.3, rho=0.2, beta1=0.8)).optimizer(nn.Linear(1, 1), facts).param_groups[0]
    assert (group["lr"], group["rho"], group["betas"][0], group["max_grad_norm"]) == (0.3, 0.2, 0.8, 2.0)


def test_the_second_pass_is_a_distance_of_rho_away() -> None:
    training: Any = Quadratic(method := SAMMethod(SAMSettings(rho=0.1)))  # type: ignore[arg-type]
    mean = training.model.weight.item()
    (loss,) = method.gradients(training, torch.ones(1))  # type: ignore[arg-type]
    (first, _, _), (second, _, _) = training.calls
    assert first == mean
    assert loss.item() == pytest.approx(0.5 * (mean - 1.0) ** 2)
    assert second == pytest.approx(mean + (0.1 if mean > 1.0 else -0.1), rel=1e-5)
    assert training.model.weight.item() == mean
    assert training.model.weight.grad.item() == pytest.approx(second - 1.0)


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained("sam", tmp_path_factory.mktemp("sam") / "run")


def test_the_command_line_trains_it(straight: Path) -> None:
    assert type(posterior.load(straight / "posterior.safetensors")) is Point
    assert scores(straight)["mean"]["accuracy"] > 0.8


def test_a_killed_run_ends_with_the_same_bits(straight: Path, tmp_path: Path) -> None:
    assert_repeats_after_a_kill("sam", straight, tmp_path)


def test_the_later_stages_repeat_what_train_wrote(straight: Path) -> None:
    assert_later_stages_repeat(straight)
