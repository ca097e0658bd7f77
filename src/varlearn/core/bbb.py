"""Bayes by backprop (Blundell et al., 2015) as functions on tensors: Adam on the mean and the width of each weight.

The posterior is q = N(m, sigma^2) with sigma = log(1 + e^rho), and the objective is, per example::

    E_q[loss] + KL(q || p) / lambda,    p = N(m0, s^2)

The gradient g of the loss is taken at m + sigma eps. It is the gradient of the mean, and g eps is the gradient of
sigma; both get the exact gradient of the KL, summed over all weights. Adam takes the step of m and of rho.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import softplus

from varlearn.core.rule import Rule

_NO_NOISE = -1e4
_TINY = 1e-30  # below any sigma that matters; keeps 0 / 0 from a weight without noise


class Hyper(NamedTuple):
    """The scalars of one step.

    Attributes:
        lr: the learning rate, of mean and rho.
        beta1: average of gradients.
        beta2: average of squared gradients.
        eps: Adam's eps.
        decay: decoupled decay of mean and rho, 0 but for the paper's variant.
        pull: strength of the prior, weight / (lambda s^2).
        entropy: weight / lambda. `weight` is the factor of the KL.
        step: number of the step, 1 for the first.
    """

    lr: float
    beta1: float
    beta2: float
    eps: float
    decay: float
    pull: float
    entropy: float
    step: int


def rho_of(std: float) -> float:
    """rho with log(1 + e^rho) = std; for 0 a number so low that sigma is 0 and its gradient too.

    >>> round(rho_of(math.log(2.0)), 6), std(torch.tensor(rho_of(0.0))).item()
    (0.0, 0.0)
    """
    if std == 0.0:
        return _NO_NOISE
    return math.log(math.expm1(std)) if std < 30.0 else std


def std(rho: Tensor, ess: float | Tensor = 1.0, weight_decay: float | Tensor = 0.0) -> Tensor:
    """sigma = log(1 + e^rho); the scale of the engines' other rules has no part in it.

    >>> std(torch.tensor([0.0]))
    tensor([0.6931])
    """
    return softplus(rho)


def std_gradient(
    approximation: str,
    grad: Tensor,
    rho: Tensor,
    epsilon: Callable[[], Tensor],
    ess: float | Tensor,
    weight_decay: float | Tensor,
) -> Tensor:
    """The gradient of the loss by sigma, from one sample: g eps.

    >>> one = torch.ones(1)
    >>> std_gradient("reparam", 2.0 * one, one, lambda: -3.0 * one, 1.0, 0.0)
    tensor([-6.])
    """
    return grad * epsilon()


def step(
    values: tuple[Tensor, ...], grad: Tensor, std_grad: Tensor, hyper: Hyper, prior_mean: Tensor | float
) -> tuple[Tensor, ...]:
    """Adam's step of mean and rho along the gradient of the objective.

    Args:
        values: mean, rho, and Adam's two averages of each.
        grad: of the loss by the mean, averaged over samples.
        std_grad: of the loss by sigma, averaged over samples.
        hyper: scalars.
        prior_mean: m0.

    >>> zero = torch.zeros(1)
    >>> hyper = Hyper(0.1, 0.9, 0.999, 1e-8, 0.0, 0.0, 0.0, 1)
    >>> mean, rho, *_ = step((zero, zero, zero, zero, zero, zero), torch.ones(1), -torch.ones(1), hyper, 0.0)
    >>> mean, rho  # the first steps of Adam are of length lr
    (tensor([-0.1000]), tensor([0.1000]))
    """
    mean, rho, mean_avg, mean_avg_sq, rho_avg, rho_avg_sq = values
    sigma = softplus(rho)
    slope = torch.sigmoid(rho)
    by_mean = grad + hyper.pull * (mean - prior_mean)
    by_rho = (std_grad + hyper.pull * sigma).mul_(slope)
    by_rho.sub_(slope.div_(sigma.clamp_(min=_TINY)), alpha=hyper.entropy)
    mean, mean_avg, mean_avg_sq = _adam(mean, by_mean, mean_avg, mean_avg_sq, hyper)
    rho, rho_avg, rho_avg_sq = _adam(rho, by_rho, rho_avg, rho_avg_sq, hyper)
    return mean, rho, mean_avg, mean_avg_sq, rho_avg, rho_avg_sq


def _adam(value: Tensor, grad: Tensor, avg: Tensor, avg_sq: Tensor, hyper: Hyper) -> tuple[Tensor, Tensor, Tensor]:
    avg = avg.lerp(grad, 1.0 - hyper.beta1)
    avg_sq = (avg_sq * hyper.beta2).addcmul_(grad, grad, value=1.0 - hyper.beta2)
    size = hyper.lr / (1.0 - hyper.beta1**hyper.step)
    root = avg_sq.sqrt().div_(math.sqrt(1.0 - hyper.beta2**hyper.step)).add_(hyper.eps)
    value = value * (1.0 - hyper.lr * hyper.decay) if hyper.decay else value
    return torch.addcdiv(value, avg, root, value=-size), avg, avg_sq


RULE = Rule(
    name="bbb",
    state=("rho", "mean_avg", "mean_avg_sq", "rho_avg", "rho_avg_sq"),
    initial={"rho": "rho_init"},
    curvature="rho",
    std=std,
    estimate=std_gradient,
    step=step,
    restarts={"mean_avg_sq": "mean_avg", "rho_avg_sq": "rho_avg"},
)
