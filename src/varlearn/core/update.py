"""Algorithm 1 (IVON) as functions on tensors, one per line of the paper.

The engines `loop` and `foreach` compute with these functions. The native engine repeats lines 2 to 7 in C
(`optim/engine/native/ivon.h`), and `diagnostics` repeats the direction of line 7; tests compare both with this file.

Symbols: m `mean`, h `hess`, g `momentum`, sigma `std`, lambda `ess`, delta `weight_decay`, xi `clip_radius`,
alpha `lr`, m0 `prior_mean`. Hyperparameters are Python floats (float64) until they meet a tensor.

In exact arithmetic h + delta > 0 always. In floating point a gradient near the largest number overflows, and a thousand
halvings of h + delta underflow. Each line therefore saturates: what leaves it is finite, and h + delta is a normal
positive number. Saturation sets in near 10^37 and 10^-31 in float32, far from anything that a training run visits.

No function changes its arguments, except those whose name ends in an underscore.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from varlearn.core.rule import Rule


class Hyper(NamedTuple):
    """The scalars of one step, for one parameter.

    Attributes:
        lr: alpha_t, already multiplied by (h0 + delta) where the paper's rescaling is on.
        ess: lambda, the effective sample size.
        weight_decay: delta.
        beta1: momentum of the gradient.
        beta2: momentum of the Hessian.
        clip_radius: xi, the bound on each entry of the preconditioned gradient.
        debias: 1 - beta1^t, or 1 without debiasing.
    """

    lr: float
    ess: float
    weight_decay: float
    beta1: float
    beta2: float
    clip_radius: float
    debias: float


class Gaussian(NamedTuple):
    """What a step updates: the mean, the momentum and the Hessian of one parameter."""

    mean: Tensor
    momentum: Tensor
    hess: Tensor


def std(hess: Tensor, ess: float, weight_decay: float) -> Tensor:
    """Line 8: sigma = 1 / sqrt(lambda (h + delta)).

    >>> std(torch.tensor([0.25]), ess=100.0, weight_decay=0.0)
    tensor([0.2000])
    """
    return precision(hess, weight_decay).rsqrt_().mul_(1.0 / math.sqrt(ess))


def sample(mean: Tensor, std: Tensor, noise: Tensor) -> Tensor:
    """Line 2: theta = m + sigma * epsilon.

    >>> sample(torch.tensor([1.0]), torch.tensor([0.5]), torch.tensor([2.0]))
    tensor([2.])
    """
    return torch.addcmul(mean, std, noise)


def score(noise: Tensor, std: Tensor) -> Tensor:
    """What line 3 multiplies the gradient with: (theta - m) / sigma^2 = epsilon / sigma, the slope of log q in m.

    >>> score(torch.tensor([2.0]), torch.tensor([0.5]))
    tensor([4.])
    """
    return torch.div(noise, std)


def hess_reparam(grad: Tensor, score: Tensor) -> Tensor:
    """Line 3: the reparameterization estimate ghat * (theta - m) / sigma^2.

    >>> hess_reparam(torch.tensor([3.0]), score(torch.tensor([2.0]), std=torch.tensor([0.5])))
    tensor([12.])
    """
    return saturate_(torch.mul(grad, score))


def hess_squared_gradient(grad: Tensor) -> Tensor:
    """The squared-gradient estimate ghat^2 (Appendix B.2), without any factor of lambda.

    >>> hess_squared_gradient(torch.tensor([-3.0]))
    tensor([9.])
    """
    return saturate_(torch.mul(grad, grad))


def update_momentum(momentum: Tensor, grad: Tensor, beta1: float) -> Tensor:
    """Line 4: g <- beta1 g + (1 - beta1) ghat.

    >>> update_momentum(torch.tensor([1.0]), torch.tensor([3.0]), beta1=0.5)
    tensor([2.])
    """
    return torch.mul(momentum, beta1).add_(grad, alpha=1.0 - beta1)


def update_hess(
    hess: Tensor,
    estimate: Tensor,
    beta2: float,
    weight_decay: float,
) -> Tensor:
    """Line 5: h <- beta2 h + (1 - beta2) hhat + (1/2) (1 - beta2)^2 (h - hhat)^2 / (h + delta).

    With x = (1 - beta2)(hhat - h)/(h + delta) this is h + delta <- (h + delta)(1 + x + x^2/2), and 1 + x + x^2/2 >= 1/2
    for every x: the precision at most halves in a step, whatever the estimate. Saturate the estimate first.

    >>> update_hess(torch.tensor([1.0]), torch.tensor([-1.0]), beta2=0.5, weight_decay=0.0)
    tensor([0.5000])
    """
    step = torch.sub(estimate, hess).mul_(1.0 - beta2)
    relative = step / precision(hess, weight_decay)
    # The product is +inf at worst and the other terms are finite, so the sum is never NaN. The small terms go first.
    rise = torch.addcmul(step, step, relative, value=0.5)
    return rise.add_(hess).clamp_(lowest_hess(weight_decay, hess.dtype), largest(hess.dtype))


def update_mean(
    mean: Tensor,
    momentum: Tensor,
    hess: Tensor,
    hyper: Hyper,
    prior_mean: Tensor | float = 0.0,
) -> Tensor:
    """Lines 6 and 7: gbar = g / (1 - beta1^t); m <- m - alpha clip((gbar + delta (m - m0)) / (h + delta), xi).

    >>> hyper = Hyper(lr=0.5, ess=1.0, weight_decay=1.0, beta1=0.0, beta2=0.9, clip_radius=math.inf, debias=1.0)
    >>> update_mean(torch.tensor([2.0]), torch.tensor([4.0]), torch.tensor([1.0]), hyper)
    tensor([0.5000])
    """
    offset = mean if isinstance(prior_mean, float) and prior_mean == 0.0 else mean - prior_mean
    direction = torch.div(momentum, hyper.debias).add_(offset, alpha=hyper.weight_decay)
    radius = min(hyper.clip_radius, largest(mean.dtype))
    direction = direction.div_(precision(hess, hyper.weight_decay)).clamp_(-radius, radius)
    return saturate_(torch.add(mean, direction, alpha=-hyper.lr), max(1.0, hyper.weight_decay))


def step(q: Gaussian, grad: Tensor, estimate: Tensor, hyper: Hyper, prior_mean: Tensor | float = 0.0) -> Gaussian:
    """Lines 4 to 7: the Gaussian after one step.

    Args:
        q: the Gaussian before.
        grad: ghat, the gradient averaged over samples and devices.
        estimate: hhat, likewise averaged.
        hyper: this step's scalars.
        prior_mean: m0, where the quadratic penalty is centred.

    Returns:
        The Gaussian after. The mean moves with the new Hessian; only the momentum is debiased.
    """
    momentum = update_momentum(q.momentum, grad, hyper.beta1)
    hess = update_hess(q.hess, estimate, hyper.beta2, hyper.weight_decay)
    return Gaussian(update_mean(q.mean, momentum, hess, hyper, prior_mean), momentum, hess)


def hess_estimate(
    approximation: str, grad: Tensor, hess: Tensor, epsilon: Callable[[], Tensor], ess: float, weight_decay: float
) -> Tensor:
    """hhat of one sample, by the name of the estimator; `epsilon` makes the sample's standard normals if needed.

    >>> noise = lambda: torch.tensor([2.0])
    >>> hess_estimate("reparam", torch.tensor([3.0]), torch.tensor([4.0]), noise, ess=1.0, weight_decay=0.0)
    tensor([12.])
    """
    if approximation == "squared_gradient":
        return hess_squared_gradient(grad)
    return hess_reparam(grad, score(epsilon(), std(hess, ess, weight_decay)))


def kl_divergence(
    mean: Tensor, hess: Tensor, ess: float, weight_decay: float, prior_mean: Tensor | float = 0.0
) -> Tensor:
    """KL(q || p) summed over entries, with the prior N(m0, 1/s0) of precision s0 = lambda delta.

    KL = 1/2 sum [ s0 / (lambda (h + delta)) - 1 + log(lambda (h + delta) / s0) + s0 (m - m0)^2 ], in float64.

    >>> kl_divergence(torch.tensor([2.0]), torch.tensor([0.0]), ess=10.0, weight_decay=0.1)
    tensor(2., dtype=torch.float64)
    """
    ratio = (hess.double() + weight_decay).div_(weight_decay)
    offset = (mean.double() - prior_mean).square_().mul_(ess * weight_decay)
    return 0.5 * (ratio.reciprocal() - 1.0 + ratio.log() + offset).sum()


def largest(dtype: torch.dtype) -> float:
    """The bound at which a state tensor saturates: a sixteenth of the largest number."""
    return torch.finfo(dtype).max / 16


def precision(hess: Tensor, weight_decay: float) -> Tensor:
    """h + delta, which is positive also where delta was lowered below -h while training.

    >>> precision(torch.tensor([0.5, -1.0]), weight_decay=0.25)
    tensor([7.5000e-01, 2.3842e-07])
    """
    return torch.add(hess, weight_decay).clamp_(min=lowest_precision(weight_decay, hess.dtype))


def lowest_precision(weight_decay: float, dtype: torch.dtype) -> float:
    """The smallest h + delta that survives being stored as h in `dtype`."""
    relative, absolute = precision_floor(dtype)
    return max(relative * weight_decay, absolute)


@functools.cache
def precision_floor(dtype: torch.dtype) -> tuple[float, float]:
    """What `lowest_precision` is made of: its ratio to delta, and its own least.

    >>> relative, absolute = precision_floor(torch.float32)
    >>> lowest_precision(0.25, torch.float32) == max(relative * 0.25, absolute)
    True
    """
    info = torch.finfo(dtype)
    return 8.0 * info.eps, info.tiny / info.eps


def lowest_hess(weight_decay: float, dtype: torch.dtype) -> float:
    """The smallest h, such that h + delta is positive also when it is computed in `dtype`."""
    return lowest_precision(weight_decay, dtype) - weight_decay


def saturate_(values: Tensor, margin: float = 1.0) -> Tensor:
    """Bound `values` in place to what the next line can take without overflow."""
    bound = largest(values.dtype) / margin
    return values.clamp_(-bound, bound)


RULE = Rule(
    name="ivon",
    state=("momentum", "hess"),
    initial={"hess": "hess_init"},
    curvature="hess",
    std=std,
    estimate=hess_estimate,
    step=lambda values, *rest: step(Gaussian(*values), *rest),
    restarts={"hess": "momentum"},
)
