"""An interrupt in the middle of a parameter, in a nested block or in a dropped step leaves no noise in the weights."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.optim.interrupts import Injector
from varlearn import IVON
from varlearn.optim.engine import foreach

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
KWARGS: dict[str, Any] = {"lr": 0.1, "ess": 100.0, "betas": (0.9, 0.99), "seed": 1, "foreach": True, "fused": False}

# A sample of the places, and all of them.
strides = pytest.mark.parametrize("stride", [61, pytest.param(1, marks=pytest.mark.slow)])


class Trial:
    """A small model after one step, which is set back before each interrupt. All parameters are cut into chunks."""

    def __init__(self, memory: str) -> None:
        self.params = [nn.Parameter(torch.linspace(-2.0, 2.0, 9)), nn.Parameter(torch.ones(2, 3))]
        self.options = {**KWARGS, "memory": memory}
        self.opt = IVON(self.params, **self.options)
        with self.opt.sampled_params(train=True):
            self.backward()
        self.opt.step()
        self.mean, self.state = self.weights(), self.opt.state_dict()
        self.tolerance = 0.0 if memory == "fast" else 1e-5

    def weights(self) -> list[Tensor]:
        return [param.detach().clone() for param in self.params]

    def backward(self, factor: float = 1.0) -> Tensor:
        self.opt.zero_grad()
        loss = torch.stack([param.square().sum() for param in self.params]).sum() * factor
        loss.backward()
        return loss

    def reset(self) -> None:
        with torch.no_grad():
            for param, value in zip(self.params, self.mean, strict=True):
                param.copy_(value)
                param.grad = None
        self.opt = IVON(self.params, **self.options)
        self.opt.load_state_dict(self.state)

    def check(self, action: Callable[[], None], stride: int) -> None:
        """Interrupt `action`, after which the weights are the old mean, at every `stride`-th place."""
        lost, places = [], 0
        for count in itertools.count(1, stride):
            self.reset()
            injector = Injector(count)
            injector.run(action)
            if injector.where is None:
                break
            places += 1
            pairs = zip(self.weights(), self.mean, strict=True)
            is_mean = all(bool(((now - old).abs() <= self.tolerance).all()) for now, old in pairs)
            if self.opt.is_sampled or self.opt._lock.is_held or not is_mean:
                lost.append(injector.where)
        assert places * stride > 100
        assert not lost, lost


@pytest.fixture(params=["fast", "lean"])
def trial(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Trial:
    monkeypatch.setattr(foreach, "_CPU_CHUNK", 4)
    made = Trial(request.param)
    (plan,) = made.opt._members._plans
    assert len(plan._chunks) > 2  # type: ignore[attr-defined]
    return made


@strides
@pytest.mark.parametrize("train", [False, True], ids=["evaluation", "training"])
def test_in_a_block(trial: Trial, train: bool, stride: int) -> None:
    def block() -> None:
        with trial.opt.sampled_params(train=train):
            pass

    trial.check(block, stride)


@strides
@pytest.mark.parametrize("train", [False, True], ids=["evaluation", "training"])
def test_in_an_evaluation_inside_a_block(trial: Trial, train: bool, stride: int) -> None:
    def blocks() -> None:
        with trial.opt.sampled_params(train=train), trial.opt.sampled_params():
            pass

    trial.check(blocks, stride)


@strides
@pytest.mark.parametrize("way", ["modes", "closure"])
def test_in_a_step_that_is_dropped_for_nan(trial: Trial, way: str, stride: int) -> None:
    """The sample is still in the weights when the step gives up."""

    def step() -> None:
        if way == "closure":
            trial.opt.step(lambda: trial.backward(torch.nan))
            return
        try:
            trial.opt.train()
            trial.backward(torch.nan)
            trial.opt.step()
        finally:
            trial.opt.eval()

    trial.check(step, stride)
