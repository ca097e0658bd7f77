"""The published VOGN as a method: IVON's defaults and average, no damping."""

from pathlib import Path

import pytest
from torch import nn

from tests.methods.command_line import assert_later_stages_repeat, assert_repeats_after_a_kill, scores, trained
from varlearn import posterior
from varlearn.methods import Facts, Optim
from varlearn.methods.vogn_paper import VOGNPaperMethod, VOGNPaperSettings
from varlearn.posterior import DiagGaussian


def test_its_settings_are_ivons_and_reach_the_optimizer() -> None:
    facts = Facts(n=10, batch_size=2, steps=3, task="classification", seed=5)
    optimizer = VOGNPaperMethod(VOGNPaperSettings()).optimizer(nn.Linear(1, 1), facts)
    group = optimizer.param_groups[0]
    ivon = Optim("ivon")
    assert (group["lr"], group["hess_init"], group["weight_decay"]) == (ivon.lr, ivon.hess_init, ivon.weight_decay)
    assert (group["betas"], group["ess"], group["seed"]) == ((ivon.beta1, ivon.beta2), 10.0, 5)
    assert (group["damping"], group["momentum"]) == (0.0, "average")
    assert optimizer._hyper(group, 1).debias == pytest.approx(1.0 - ivon.beta1)  # an average is debiased


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained("vogn-paper", tmp_path_factory.mktemp("vogn-paper") / "run")


def test_the_command_line_trains_it(straight: Path) -> None:
    assert type(posterior.load(straight / "posterior.safetensors")) is DiagGaussian
    assert scores(straight)["mean"]["accuracy"] > 0.8


def test_a_killed_run_ends_with_the_same_bits(straight: Path, tmp_path: Path) -> None:
    assert_repeats_after_a_kill("vogn-paper", straight, tmp_path)


def test_the_later_stages_repeat_what_train_wrote(straight: Path) -> None:
    assert_later_stages_repeat(straight)
