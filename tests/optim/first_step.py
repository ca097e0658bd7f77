"""A first step from h = h0 and momentum 0, compared with lines 3 to 5 of the paper.

They are worked out in float64 from the gradients and from where the weights were inside the blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tests.optim.contract import TinyNet, mse
from varlearn import IVON

ESS, DECAY, H0, BETA1, BETA2 = 100.0, 0.01, 0.5, 0.9, 0.99
KWARGS: dict[str, Any] = {
    "lr": 0.1, "ess": ESS, "weight_decay": DECAY, "hess_init": H0, "betas": (BETA1, BETA2), "seed": 1
}  # fmt: skip


def fresh(dtype: torch.dtype = torch.float32, **kwargs: Any) -> tuple[TinyNet, IVON]:
    model = TinyNet(dtype)
    return model, IVON(model.parameters(), **{**KWARGS, **kwargs})


class Samples:
    """Gradients and offsets theta - m of the samples of a first step, as seen from outside the optimizer."""

    def __init__(self, model: nn.Module) -> None:
        self.params = list(model.parameters())
        self.mean = [param.detach().double() for param in self.params]
        self.grads: list[list[Tensor]] = []
        self.offsets: list[list[Tensor]] = []

    def record(self, loss: Tensor) -> None:
        """Inside the block, before backward."""
        grads = torch.autograd.grad(loss, self.params, retain_graph=True)
        self.grads.append([grad.double() for grad in grads])
        self.offsets.append([p.detach().double() - mean for p, mean in zip(self.params, self.mean, strict=True)])

    def take(self, opt: IVON, model: TinyNet, count: int) -> None:
        """Backward in `count` blocks, each at a batch of its own; gradients are not cleared in between."""
        for index in range(count):
            with opt.sampled_params(train=True):
                loss = mse(model, index)
                self.record(loss)
                loss.backward()

    def check(self, opt: IVON, factor: float = 1.0, hess_factor: float | None = None, rtol: float = 1e-4) -> None:
        """The state after the step is the paper's, the gradients having been multiplied by `factor` in between."""
        for index, param in enumerate(self.params):
            grads, offsets = ([sample[index] for sample in kept] for kept in (self.grads, self.offsets))
            ghat = torch.stack(grads).mean(0) * factor
            products = [grad * offset * ESS * (H0 + DECAY) for grad, offset in zip(grads, offsets, strict=True)]
            hhat = torch.stack(products).mean(0) * (factor if hess_factor is None else hess_factor)
            hess = BETA2 * H0 + (1 - BETA2) * hhat + 0.5 * (1 - BETA2) ** 2 * (H0 - hhat) ** 2 / (H0 + DECAY)
            momentum, h = opt.state[param]["momentum"].double(), opt.state[param]["hess"].double()
            scale = float(ghat.abs().max())
            torch.testing.assert_close(momentum, (1 - BETA1) * ghat, rtol=rtol, atol=rtol * scale)
            torch.testing.assert_close(h, hess, rtol=rtol, atol=rtol)


def norm(grads: Sequence[Tensor]) -> float:
    return float(torch.stack([grad.square().sum() for grad in grads]).sum().sqrt())
