"""Stochastic gradient descent with momentum."""

from __future__ import annotations

from typing import TYPE_CHECKING

from varlearn.methods.method import Facts, Method, S
from varlearn.methods.parameter_groups import parameter_groups

if TYPE_CHECKING:
    import torch
    from torch import nn


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
