"""SWAG as a method: when it collects, at which rate, and what results."""

from dataclasses import replace

import pytest
import torch

from varlearn.data.examples import Examples
from varlearn.methods import Facts
from varlearn.methods.swag import SWAGMethod, SWAGSettings
from varlearn.posterior import DiagGaussian, LowRankGaussian
from varlearn.train.build import build_parts
from varlearn.train.config import Data, Model, Run, Train
from varlearn.train.processes import Processes
from varlearn.train.training import Training

EXAMPLES = Examples(torch.randn(8, 3), torch.tensor([0, 1] * 4), ("a", "b"), "table")
ALONE = Processes(0, 1, torch.device("cpu"))


def trained(optim: SWAGSettings, epochs: int = 10, upto: int | None = None) -> tuple[Training, list[dict]]:
    torch.manual_seed(0)
    run = Run(model=Model("mlp", 2, hidden=(4,)), data=Data(batch_size=4), optim=optim, train=Train(epochs=epochs))
    training, snapshots = Training(build_parts(run, EXAMPLES, ALONE), ALONE), []
    while training.step < (upto or training.facts.steps):
        training.gradients()
        training.update()
        snapshots.append({name: value.detach().clone() for name, value in training.model.named_parameters()})
    return training, snapshots


def test_the_posterior_is_that_of_the_last_epochs() -> None:
    training, snapshots = trained(SWAGSettings(collect=0.5, collect_lr=0.02))
    found = training.posterior()
    assert isinstance(found, LowRankGaussian)
    assert found.rank == 5
    for name, mean in found.mean.items():
        kept = torch.stack([snapshots[step - 1][name] for step in (12, 14, 16, 18, 20)])
        torch.testing.assert_close(mean, kept.mean(0))
        torch.testing.assert_close(found.var[name], kept.var(0, correction=0))
        expected = torch.stack([kept[k] - kept[: k + 1].mean(0) for k in range(5)])
        torch.testing.assert_close(found.deviations[name], expected)


def test_the_rate_falls_to_that_of_the_collection_and_stays() -> None:
    training, _ = trained(SWAGSettings(lr=0.05, collect_lr=0.01), upto=1)
    method, facts = training.method, Facts(100, 10, 500, "classification")
    halves = [method.lr(step, facts, 0.05, lambda step, total: 1.0 - step / total) for step in (0, 200, 400, 499)]
    assert halves == pytest.approx([0.05, 0.03, 0.01, 0.01])
    training.step = 16
    assert training.lr() == 0.01
    training.step = 8
    assert training.lr() == pytest.approx(0.03)  # the cosine at its half


@pytest.mark.parametrize(("steps", "expected"), [(2, [1, 2]), (5, [4, 5]), (25, [21, 23, 25]), (60, [54, 60])])
def test_short_runs_collect_twice_at_least(steps: int, expected: list[int]) -> None:
    method, facts = SWAGMethod(SWAGSettings()), Facts(100, 10, steps, "classification")
    assert [step for step in range(steps + 1) if method.is_due(step, facts)] == expected


def test_the_diagonal_alone() -> None:
    training, _ = trained(SWAGSettings(covariance="diagonal"))
    found = training.posterior()
    assert isinstance(found, DiagGaussian)
    assert isinstance(training.method, SWAGMethod)
    low_rank = training.method.collection.posterior(training.model)
    assert isinstance(low_rank, LowRankGaussian)
    for name, std in found.std.items():
        torch.testing.assert_close(std, low_rank.var[name].sqrt())


def test_a_collection_goes_on_from_a_checkpoint() -> None:
    settings = SWAGSettings(rank=3, collect=0.8)
    straight = trained(settings)[0].posterior()
    half, _ = trained(settings, upto=11)
    resumed, _ = trained(settings, upto=1)
    resumed.load_state_dict(half.state_dict())
    while resumed.step < resumed.facts.steps:
        resumed.gradients()
        resumed.update()
    found = resumed.posterior()
    assert isinstance(found, LowRankGaussian)
    assert isinstance(straight, LowRankGaussian)
    for name in found.mean:
        assert torch.equal(found.mean[name], straight.mean[name])
        assert torch.equal(found.deviations[name], straight.deviations[name])
        assert torch.equal(found.var[name], straight.var[name])


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match=r"optim.rank=1 must be >= 2; 20 is the paper's"):
        SWAGSettings(rank=1)
    with pytest.raises(ValueError, match=r"optim.collect=0.0 must be > 0 and <= 1; 0.2 is the paper's"):
        replace(SWAGSettings(), collect=0.0)
