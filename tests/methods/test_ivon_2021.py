"""The IVON of 2021 as a method: its settings, and the command line."""

from pathlib import Path

import pytest
from torch import nn

from tests.methods.command_line import assert_later_stages_repeat, assert_repeats_after_a_kill, scores, trained
from varlearn import posterior
from varlearn.methods import Facts
from varlearn.methods.ivon_2021 import IVON2021Method, IVON2021Settings
from varlearn.posterior import DiagGaussian


def test_settings_reach_the_optimizer() -> None:
    facts = Facts(n=10, batch_size=2, steps=3, task="classification", seed=5, max_grad_norm=2.0)
    settings = IVON2021Settings(lr=0.3, damping=0.2, beta1=0.8, beta2=0.95, samples=3, rescale_lr=False)
    group = IVON2021Method(settings).optimizer(nn.Linear(1, 1), facts).param_groups[0]
    expected = {"lr": 0.3, "damping": 0.2, "ess": 10.0, "mc_samples": 3, "rescale_lr": False, "max_grad_norm": 2.0}
    assert {name: group[name] for name in expected} == expected
    assert (group["betas"], group["momentum"]) == ((0.8, 0.95), "average")


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained("ivon-2021", tmp_path_factory.mktemp("ivon-2021") / "run")


def test_the_command_line_trains_it(straight: Path) -> None:
    assert type(posterior.load(straight / "posterior.safetensors")) is DiagGaussian
    assert scores(straight)["mean"]["accuracy"] > 0.8


def test_a_killed_run_ends_with_the_same_bits(straight: Path, tmp_path: Path) -> None:
    assert_repeats_after_a_kill("ivon-2021", straight, tmp_path)


def test_the_later_stages_repeat_what_train_wrote(straight: Path) -> None:
    assert_later_stages_repeat(straight)
