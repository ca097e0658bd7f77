"""A run with one weight and a quadratic loss, and what methods do with it alike."""

from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

from varlearn import DiagGaussian
from varlearn.methods import Facts, Method
from varlearn.posterior import Point

FACTS = Facts(n=10, batch_size=2, steps=3, task="classification", seed=5, max_grad_norm=2.0)


class Quadratic:
    """A run whose loss is (w - batch)^2 / 2; it writes down how `backward` is called."""

    def __init__(self, method: Method[Any]) -> None:
        self.model, self.facts, self.step = nn.Linear(1, 1, bias=False), FACTS, 0
        self.optimizer = method.optimizer(self.model, FACTS)
        self.calls: list[tuple[float, float | None, bool]] = []

    def backward(self, batch: Any, *, share: float | None = None, more: bool = False) -> Tensor:
        loss = self.loss(batch)
        loss.backward()
        self.calls.append((self.model.weight.item(), share, more))
        return loss.detach()

    def forward(self, inputs: Tensor) -> Tensor:
        return self.model(inputs)

    def loss(self, batch: Any) -> Tensor:
        return 0.5 * (self.model.weight - batch).square().sum()


def assert_learns_a_point(method: Method[Any]) -> None:
    """One pass per batch; the posterior is a copy of the weights."""
    training: Any = Quadratic(method)
    (loss,) = method.gradients(training, torch.ones(1))  # type: ignore[arg-type]
    assert training.calls == [(training.model.weight.item(), None, False)]
    assert loss.item() == training.loss(torch.ones(1)).item()
    found = method.finish(training, [])
    assert isinstance(found, Point)
    assert torch.equal(found.mean["weight"], training.model.weight.detach())
    with torch.no_grad():
        training.model.weight.add_(1.0)
    assert not torch.equal(found.mean["weight"], training.model.weight.detach())
    assert (method.predictor(found), method.averages, method.diagnostics(training)) == (found, False, {})


def assert_learns_a_gaussian(method: Method[Any], steps: int = 1) -> None:
    """Posterior and diagnostics are those of the optimizer."""
    training: Any = Quadratic(method)
    for _ in range(steps):
        method.gradients(training, torch.ones(1))  # type: ignore[arg-type]
        training.optimizer.step()
    found = method.finish(training, [])
    expected = DiagGaussian.from_optimizer(training.model, training.optimizer)
    assert torch.equal(found.std["weight"], expected.std["weight"])
    assert torch.equal(found.mean["weight"], training.model.weight.detach())
    (group,) = training.optimizer.diagnostics()
    numbers = {name: value for name, value in asdict(group).items() if value is not None and name != "findings"}
    assert method.diagnostics(training) == numbers
