"""Bayesian SAM (Moellenhoff and Khan, 2023) as functions on tensors: SAM with a Gaussian over the weights.

With s = h + delta, so that sigma^2 = 1 / (lambda s) as in IVON, and g the gradient at a sample of N(m, sigma^2)::

    e = rho g / s
    b <- beta1 b + (1 - beta1) (grad(m + e) + delta m)
    s <- beta2 s + (1 - beta2) (sqrt(s) |g| + delta + gamma)
    m <- m - alpha b / s

h is what is stored; gamma is the damping.
"""

from __future__ import annotations

import torch
from torch import Tensor

from varlearn.core import update
from varlearn.core.rule import Rule
from varlearn.core.vogn import Hyper, update_hess, update_mean, update_momentum


def perturbation(grad: Tensor, hess: Tensor, rho: float, weight_decay: float) -> Tensor:
    """e = rho g / (h + delta).

    >>> perturbation(torch.tensor([3.0]), torch.tensor([1.0]), rho=0.5, weight_decay=0.5)
    tensor([1.])
    """
    return torch.mul(grad, rho).div_(update.precision(hess, weight_decay))


def estimate(grad: Tensor, hess: Tensor, weight_decay: float) -> Tensor:
    """hhat = sqrt(h + delta) |g|, with the gradient at the sample.

    >>> estimate(torch.tensor([-3.0]), torch.tensor([3.5]), weight_decay=0.5)
    tensor([6.])
    """
    return update.saturate_(update.precision(hess, weight_decay).sqrt_().mul_(grad.abs()))


def step(
    q: update.Gaussian, grad: Tensor, hhat: Tensor, hyper: Hyper, prior_mean: Tensor | float = 0.0
) -> update.Gaussian:
    """The Gaussian after one step.

    Args:
        q: the Gaussian before.
        grad: at m + e.
        hhat: sqrt(h + delta) |g|.
        hyper: this step's scalars, with `grad_weight` = 1 - beta1.
        prior_mean: m0.
    """
    momentum = update_momentum(q, grad, hyper, prior_mean)
    hess = update_hess(q.hess, update.saturate_(torch.add(hhat, hyper.damping)), hyper.beta2)
    return update.Gaussian(update_mean(q.mean, momentum, hess, hyper, hyper.weight_decay), momentum, hess)


RULE = Rule(
    name="bsam",
    state=("momentum", "hess"),
    initial={"hess": "hess_init"},
    curvature="hess",
    std=update.std,
    estimate=lambda approximation, grad, hess, epsilon, ess, weight_decay: estimate(grad, hess, weight_decay),
    step=lambda values, *rest: step(update.Gaussian(*values), *rest),
    restarts={"hess": "momentum"},
)
