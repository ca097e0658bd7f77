"""Sharpness-aware minimization (Foret et al., 2021) as functions on tensors, with SGD's step.

The gradient g at the weights moves them to where the loss is about largest within a distance rho; the gradient there is
what SGD uses::

    e = rho g / |g|_2 over all parameters,    d = grad(theta + e) + delta theta
    b <- beta1 b + d,    theta <- theta - alpha b
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from varlearn.core import update
from varlearn.core.rule import Rule, no_std


class Hyper(NamedTuple):
    """The scalars of one step, for one parameter: learning rate, L2 penalty and momentum."""

    lr: float
    weight_decay: float
    beta1: float


def step(values: tuple[Tensor, ...], grad: Tensor, hyper: Hyper) -> tuple[Tensor, Tensor]:
    """SGD's step with the gradient at the moved weights.

    Args:
        values: the weights and the momentum before.
        grad: at theta + e.
        hyper: this step's scalars.

    >>> step((torch.tensor([1.0]), torch.tensor([2.0])), torch.tensor([0.5]), Hyper(0.1, 0.5, beta1=0.5))
    (tensor([0.8000]), tensor([2.]))
    """
    mean, momentum = values
    slope = torch.add(grad, mean, alpha=hyper.weight_decay)
    momentum = update.saturate_(torch.mul(momentum, hyper.beta1).add_(slope))
    return update.saturate_(torch.add(mean, momentum, alpha=-hyper.lr)), momentum


RULE = Rule(
    name="sam",
    state=("momentum",),
    initial={},
    curvature="momentum",
    std=no_std,
    estimate=lambda approximation, grad, *rest: grad,
    step=lambda values, grad, hhat, hyper, prior_mean: step(values, grad, hyper),
    has_products=False,
)
