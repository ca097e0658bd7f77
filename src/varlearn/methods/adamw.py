"""AdamW (Loshchilov and Hutter, 2019)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from varlearn.methods.method import Facts, Method, S, Training
from varlearn.methods.parameter_groups import parameter_groups

if TYPE_CHECKING:
    import torch
    from torch import nn

    from varlearn.posterior import DiagGaussian


class AdamWMethod(Method[S]):
    """PyTorch's AdamW; the final weights are the result."""

    name = "adamw"
    label = "AdamW"
    cost = "forward and backward pass per step; two copies of the weights"
    averages = False

    @classmethod
    def untuned(cls, model: nn.Module, n: int, steps: int) -> dict[str, Any]:
        """The learning rate of variational AdamW, and PyTorch's other settings."""
        from varlearn.optim.prior_widths import suggested_lr

        return {"lr": suggested_lr(model), "weight_decay": 0.01, "beta2": 0.999}

    def optimizer(self, model: nn.Module, facts: Facts) -> torch.optim.AdamW:
        """AdamW with `lr`, `beta1`, `beta2` and `weight_decay`."""
        import torch

        settings = self.settings
        betas = (settings.beta1, settings.beta2)
        return torch.optim.AdamW(parameter_groups(model, settings), lr=settings.lr, betas=betas, weight_decay=0.0)

    def gaussian(self, training: Training) -> DiagGaussian:
        """The paper's: sigma^2 = 1 / (n (sqrt(v) + weight_decay)), with v of the optimizer's state."""
        from varlearn.posterior import DiagGaussian

        ess, decay = float(training.facts.n), self.settings.weight_decay
        return DiagGaussian.from_optimizer(training.model, training.optimizer, ess=ess, weight_decay=decay)
