"""IVON as a method: its settings, its blocks, its posterior."""

from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

from varlearn import IVON, DiagGaussian
from varlearn.methods import Facts, Optim
from varlearn.methods.ivon import IVONMethod

FACTS = Facts(n=10, batch_size=2, steps=3, task="classification", seed=5, max_grad_norm=2.0)
SETTINGS = {"lr": 0.3, "ess": 7.0, "hess_init": 0.2, "clip_radius": 0.5, "rescale_lr": False}


class Quadratic:
    """A run whose loss is (w - batch)^2 / 2; it writes down how `backward` is called."""

    def __init__(self, method: IVONMethod) -> None:
        self.model, self.facts, self.step = nn.Linear(1, 1, bias=False), FACTS, 0
        self.optimizer = method.optimizer(self.model, FACTS)
        self.calls: list[tuple[float, float | None, bool]] = []

    def backward(self, batch: Any, *, share: float | None = None, more: bool = False) -> Tensor:
        loss = self.loss(batch)
        loss.backward()
        self.calls.append((self.model.weight.item(), share, more))
        return loss.detach()

    def loss(self, batch: Any) -> Tensor:
        return 0.5 * (self.model.weight - batch).square().sum()


def test_settings_and_facts_reach_the_optimizer() -> None:
    method = IVONMethod(Optim("ivon", beta1=0.8, beta2=0.95, samples=3, **SETTINGS))  # type: ignore[arg-type]
    optimizer = method.optimizer(nn.Linear(1, 1), FACTS)
    assert isinstance(optimizer, IVON)
    expected = SETTINGS | {"seed": 5, "max_grad_norm": 2.0, "mc_samples": 3}
    group = optimizer.param_groups[0]
    assert {name: group[name] for name in expected} == expected
    assert tuple(group["betas"]) == (0.8, 0.95)


def test_ess_is_the_number_of_examples_unless_given() -> None:
    assert IVONMethod(Optim("ivon")).optimizer(nn.Linear(1, 1), FACTS).param_groups[0]["ess"] == 10.0


def test_each_sample_has_its_own_block_and_the_last_one_is_averaged_over_processes() -> None:
    training = Quadratic(method := IVONMethod(Optim("ivon", samples=3)))
    mean = training.model.weight.item()
    losses = method.gradients(training, torch.ones(1))  # type: ignore[arg-type]
    weights, shares, more = zip(*training.calls, strict=True)
    assert len({*weights, mean}) == 4
    assert (shares, more) == ((1.0,) * 3, (True, True, False))
    assert [loss.item() for loss in losses] == [0.5 * (torch.tensor(w) - 1.0).square().item() for w in weights]
    assert training.model.weight.item() == mean
    torch.testing.assert_close(training.model.weight.grad, torch.tensor([[sum(weights) / 3 - 1.0]]))


def test_the_posterior_and_the_diagnostics_are_the_optimizer_s() -> None:
    training = Quadratic(method := IVONMethod(Optim("ivon")))
    method.gradients(training, torch.ones(1))  # type: ignore[arg-type]
    training.optimizer.step()
    found = method.finish(training, [])
    expected = DiagGaussian.from_optimizer(training.model, training.optimizer)
    assert torch.equal(found.std["weight"], expected.std["weight"])
    assert torch.equal(found.mean["weight"], training.model.weight.detach())
    (group,) = training.optimizer.diagnostics()
    numbers = {name: value for name, value in asdict(group).items() if value is not None and name != "findings"}
    assert method.diagnostics(training) == numbers
