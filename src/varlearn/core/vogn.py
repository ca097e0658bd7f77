"""VOGN (Osawa et al., 2019) as functions on tensors: Equation 2 of the paper, and the variant that its runs had.

With gamma `damping`, c = delta + gamma, and hhat the mean of squared gradients of single examples, Equation 2 is::

    g <- beta1 g + ghat + delta (m - m0)
    h <- beta2 h + (1 - beta2) hhat
    m <- m - alpha g / (h + c),    sigma = 1 / sqrt(lambda (h + c))

The prior is inside the momentum. The published runs averaged the momentum as IVON does: ghat + delta (m - m0) gets the
factor 1 - beta1 and g is debiased. `Hyper.grad_weight` and `Hyper.debias` choose.

hhat is never negative, so h stays positive without the correction of IVON's line 5. The bounds are those of `update`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from varlearn.core import update
from varlearn.core.rule import Rule


class Hyper(NamedTuple):
    """The scalars of one step, for one parameter.

    Attributes:
        lr: alpha_t, already rescaled.
        weight_decay: delta, which pulls the mean to m0 inside the momentum.
        damping: gamma, added to h wherever h + delta divides.
        beta1: decay of the momentum.
        grad_weight: of the gradient in the momentum: 1 for Equation 2, 1 - beta1 for an average.
        beta2: momentum of the Hessian.
        clip_radius: xi, the bound on each entry of the preconditioned gradient.
        debias: divides the momentum: 1, or 1 - beta1^t.
    """

    lr: float
    weight_decay: float
    damping: float
    beta1: float
    grad_weight: float
    beta2: float
    clip_radius: float
    debias: float


def update_momentum(q: update.Gaussian, grad: Tensor, hyper: Hyper, prior_mean: Tensor | float = 0.0) -> Tensor:
    """g <- beta1 g + w (ghat + delta (m - m0)), with w = `grad_weight`.

    >>> q = update.Gaussian(torch.tensor([2.0]), momentum=torch.tensor([1.0]), hess=torch.tensor([1.0]))
    >>> hyper = Hyper(
    ...     1.0, weight_decay=0.5, damping=0.0, beta1=0.5, grad_weight=1.0, beta2=0.9, clip_radius=9, debias=1
    ... )
    >>> update_momentum(q, torch.tensor([3.0]), hyper)
    tensor([4.5000])
    """
    offset = q.mean if isinstance(prior_mean, float) and prior_mean == 0.0 else q.mean - prior_mean
    slope = torch.add(grad, offset, alpha=hyper.weight_decay)
    return update.saturate_(torch.mul(q.momentum, hyper.beta1).add_(slope, alpha=hyper.grad_weight))


def update_hess(hess: Tensor, estimate: Tensor, beta2: float) -> Tensor:
    """h <- beta2 h + (1 - beta2) hhat.

    >>> update_hess(torch.tensor([1.0]), torch.tensor([3.0]), beta2=0.5)
    tensor([2.])
    """
    bound = update.largest(hess.dtype)
    return torch.mul(hess, beta2).add_(estimate, alpha=1.0 - beta2).clamp_(0.0, bound)


def update_mean(mean: Tensor, momentum: Tensor, hess: Tensor, hyper: Hyper, constant: float) -> Tensor:
    """m <- m - alpha clip((g / debias) / (h + c), xi); the prior is in g already.

    >>> hyper = Hyper(0.5, weight_decay=0.0, damping=1.0, beta1=0, grad_weight=1, beta2=0.9, clip_radius=9, debias=1.0)
    >>> update_mean(torch.tensor([2.0]), torch.tensor([4.0]), torch.tensor([1.0]), hyper, constant=1.0)
    tensor([1.])
    """
    radius = min(hyper.clip_radius, update.largest(mean.dtype))
    direction = torch.div(momentum, hyper.debias).div_(update.precision(hess, constant)).clamp_(-radius, radius)
    return update.saturate_(torch.add(mean, direction, alpha=-hyper.lr), max(1.0, hyper.weight_decay))


def step(
    q: update.Gaussian, grad: Tensor, estimate: Tensor, hyper: Hyper, prior_mean: Tensor | float = 0.0
) -> update.Gaussian:
    """The Gaussian after one step.

    Args:
        q: the Gaussian before.
        grad: ghat, the gradient of the mean loss at a sample.
        estimate: hhat, the mean of the examples' squared gradients at that sample.
        hyper: this step's scalars.
        prior_mean: m0.
    """
    momentum = update_momentum(q, grad, hyper, prior_mean)
    hess = update_hess(q.hess, estimate, hyper.beta2)
    mean = update_mean(q.mean, momentum, hess, hyper, hyper.weight_decay + hyper.damping)
    return update.Gaussian(mean, momentum, hess)


RULE = Rule(
    name="vogn",
    state=("momentum", "hess"),
    initial={"hess": "hess_init"},
    curvature="hess",
    std=update.std,  # its weight_decay is c
    estimate=update.hess_estimate,
    step=lambda values, *rest: step(update.Gaussian(*values), *rest),
    restarts={"hess": "momentum"},
)
