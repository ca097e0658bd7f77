"""Variational AdamW as functions on tensors: AdamW's step, and the variance that its second moment stands for.

The gradient g of a mean over B examples is taken at a sample of the weights. With AdamW's debiased second moment vhat,
B vhat estimates the diagonal of the Fisher matrix per example, so the precision of the posterior is::

    1 / sigma^2 = lambda B vhat + 1 / s^2,    vhat = v / (1 - beta2^t),    s the width of the prior

In the engines' form this is sigma = 1 / sqrt(ess (v + weight_decay)) with `ess` = lambda B / (1 - beta2^t) and
`weight_decay` = 1 / (ess s^2), one pair for each parameter tensor (`scale`).

The operations and their order are those of `torch.optim.AdamW(foreach=False, fused=False)`, so the mean is AdamW's bit
for bit where the noise is zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from varlearn.core.rule import Rule

_TINY = 1.2e-38  # so that v + weight_decay is not 0 in float32


class Hyper(NamedTuple):
    """The scalars of one step, for one parameter.

    Attributes:
        lr: the learning rate.
        beta1: decay of the first moment.
        beta2: decay of the second moment.
        eps: added to the root of the second moment.
        weight_decay: decoupled decay of the mean. It is not the prior.
        step: number of the step, from 1.
    """

    lr: float
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    step: int


class Moments(NamedTuple):
    """What a step updates: the mean, and the two moments of the gradient."""

    mean: Tensor
    exp_avg: Tensor
    exp_avg_sq: Tensor


def scale(ess: float, batch_size: float, beta2: float, step: int, prior_std: float) -> tuple[float, float]:
    """(ess, weight_decay) of the engines' form after `step` steps. Before the first step nothing is known: sigma = 0.

    Args:
        ess: lambda.
        batch_size: B, the number of terms in the mean loss of a step.
        beta2: decay of the second moment.
        step: steps taken.
        prior_std: s.

    >>> scale(ess=100.0, batch_size=10.0, beta2=0.5, step=1, prior_std=0.1)  # 1 / (2000 * 0.01)
    (2000.0, 0.05)
    >>> scale(ess=100.0, batch_size=10.0, beta2=0.5, step=0, prior_std=0.1)
    (inf, 1.0)
    """
    shared = fisher_scale(ess, batch_size, beta2, step)
    return shared, prior_term(shared, prior_std)


def fisher_scale(ess: float, batch_size: float, beta2: float, step: int) -> float:
    """The first number of `scale`: what v is multiplied by. All parameters of a group at one step share it."""
    return ess * batch_size / (1.0 - beta2**step) if step else math.inf


def prior_term(fisher_scale: float, prior_std: float) -> float:
    """The second number of `scale`: what is added to v, the prior's precision in units of v."""
    return 1.0 if fisher_scale == math.inf else max(1.0 / (fisher_scale * prior_std * prior_std), _TINY)


def step(q: Moments, grad: Tensor, unclipped: Tensor, hyper: Hyper) -> Moments:
    """AdamW's step.

    Args:
        q: mean and moments before.
        grad: the gradient, clipped if at all, for the first moment.
        unclipped: the gradient for the second moment, from which the variance is made.
        hyper: this step's scalars.

    Returns:
        Mean and moments after.

    >>> q = Moments(torch.tensor([1.0]), torch.zeros(1), torch.zeros(1))
    >>> hyper = Hyper(lr=0.5, beta1=0.9, beta2=0.999, eps=0.0, weight_decay=0.0, step=1)
    >>> step(q, torch.tensor([3.0]), torch.tensor([3.0]), hyper).mean  # the first step has length lr
    tensor([0.5000])
    """
    mean = q.mean * (1 - hyper.lr * hyper.weight_decay) if hyper.weight_decay != 0 else q.mean.clone()
    exp_avg = torch.lerp(q.exp_avg, grad, 1 - hyper.beta1)
    exp_avg_sq = (q.exp_avg_sq * hyper.beta2).addcmul_(unclipped, unclipped, value=1 - hyper.beta2)
    step_size = hyper.lr / (1 - hyper.beta1**hyper.step)
    denominator = (exp_avg_sq.sqrt() / (1 - hyper.beta2**hyper.step) ** 0.5).add_(hyper.eps)
    return Moments(mean.addcdiv_(exp_avg, denominator, value=-step_size), exp_avg, exp_avg_sq)


def std(exp_avg_sq: Tensor, ess: Tensor | float, weight_decay: Tensor | float) -> Tensor:
    """sigma = 1 / sqrt(ess (v + weight_decay)), with the pair of `scale`: numbers, or tensors with one entry each.

    >>> std(torch.tensor([0.0, 0.05]), 2000.0, 0.05)
    tensor([0.1000, 0.0707])
    """
    root = ess.sqrt() if isinstance(ess, Tensor) else math.sqrt(ess)
    return (exp_avg_sq + weight_decay).rsqrt_().div_(root)


def _estimate(
    approximation: str | None, grad: Tensor, curvature: Tensor, epsilon: Callable[[], Tensor], *scale: float
) -> Tensor:
    """What the second moment averages the square of: the gradient before it is clipped for the mean."""
    return grad


RULE = Rule(
    name="vadamw",
    state=("exp_avg", "exp_avg_sq"),
    initial={},
    curvature="exp_avg_sq",
    std=std,
    estimate=_estimate,
    step=lambda values, grad, unclipped, hyper, prior_mean: step(Moments(*values), grad, unclipped, hyper),
    has_products=False,
    restarts={"exp_avg_sq": "exp_avg"},
)
