"""Optimizers that learn a point, with the state, engines, guards and checkpoints of variational ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from varlearn.optim.engine.plan import Noise
from varlearn.optim.sampling.gradient_guard import GradientGuard
from varlearn.optim.sampling.sample import Sample
from varlearn.optim.sampling.sample_average import SampleAverage
from varlearn.optim.variational import VariationalOptimizer


class PointOptimizer(VariationalOptimizer):
    """An optimizer whose gradients are taken at the weights, which are no sample.

    `train()` and `eval()` do nothing, so that trainers which call them work.
    """

    _step_supports_amp_scaling = True

    def _start(self) -> None:
        super()._start()
        self._guard = _NoGuard(self._weights)

    def sampled_params(self, train: bool = False) -> AbstractContextManager[None]:
        """Refused: there is no distribution to draw from."""
        raise RuntimeError(f"sampled_params() is not for {type(self).__name__}, which learns a point; leave it out")

    def train(self, *, stay: bool = False) -> None:
        """Does nothing: the weights are never a sample."""

    def eval(self) -> None:
        """Does nothing: the weights are never a sample."""

    def posterior_terms(self, param: Tensor) -> tuple[Tensor, float, float]:
        """Refused: no variance is known."""
        raise TypeError(f"{type(self).__name__} learns a point and no variance; use IVON, VAdamW, VOGN or BSAM")

    def kl(self) -> Tensor:
        """Refused: no variance is known."""
        raise TypeError(f"{type(self).__name__} learns a point and no variance; use IVON, VAdamW, VOGN or BSAM")

    def _estimates(self) -> dict[Tensor, Tensor]:
        """What the rule takes as hhat, for parameters with a gradient."""
        return {}

    def _run(self, closure: Callable[[], Any]) -> Any:
        with torch.enable_grad():
            loss = closure()
        return loss.detach() if isinstance(loss, Tensor) else loss

    def _closed_average(self) -> SampleAverage | None:
        self._check_groups()
        params = [param for group in self.param_groups for param in group["params"] if param.requires_grad]
        if all(param.grad is None for param in params):
            return None
        members = self._members.find(self.param_groups, self.state)
        average = SampleAverage(self._members)
        nothing = {id(group): Noise(0, 1.0, 0.0) for group in self.param_groups}
        average.add(Sample(True, members, nothing), self._estimates())
        return average


class _NoGuard(GradientGuard):
    """Gradients at the weights are the right ones here."""

    def watch(self, params: Iterable[Tensor]) -> None:
        """Look at none."""
