"""Stochastic gradient descent with momentum."""

from __future__ import annotations

from typing import TYPE_CHECKING

from varlearn.methods.method import Facts, Method, S, Training
from varlearn.methods.parameter_groups import parameter_groups

if TYPE_CHECKING:
    import torch
    from torch import nn

    from varlearn.posterior import DiagGaussian


class SGDMethod(Method[S]):
    """PyTorch's SGD; the final weights are the result."""

    name = "sgd"
    label = "SGD"
    cost = "forward and backward pass per step; one copy of the weights"
    averages = False

    def optimizer(self, model: nn.Module, facts: Facts) -> torch.optim.SGD:
        """SGD with `lr`, momentum `beta1` and `weight_decay`."""
        import torch

        settings = self.settings
        groups = parameter_groups(model, settings)
        return torch.optim.SGD(groups, lr=settings.lr, momentum=settings.beta1, weight_decay=0.0)

    def gaussian(self, training: Training) -> DiagGaussian:
        """The paper's: sigma^2 = 1 / (n (1 + weight_decay))."""
        from varlearn.posterior import DiagGaussian

        ess, decay = float(training.facts.n), self.settings.weight_decay
        return DiagGaussian.from_optimizer(training.model, training.optimizer, ess=ess, weight_decay=decay)
