"""The earlier IVON that won the NeurIPS 2021 competition, as functions on tensors (the paper's appendix on it).

It differs from Algorithm 1 in two lines. The Hessian estimate has a damping gamma added, and the weight decay is inside
the momentum::

    hhat <- ghat (theta - m) / sigma^2 + gamma
    g    <- beta1 g + (1 - beta1) (ghat + delta (m - m0))

The decay then lags behind the mean by the momentum's memory, and h settles gamma above the curvature. The paper gives
neither the value of gamma nor says whether delta was in the denominators. Here h + delta stays what is positive, so
that the posterior and its divergence from the prior have IVON's form.
"""

from __future__ import annotations

import torch
from torch import Tensor

from varlearn.core import update
from varlearn.core.rule import Rule
from varlearn.core.vogn import Hyper, update_mean, update_momentum


def step(
    q: update.Gaussian, grad: Tensor, estimate: Tensor, hyper: Hyper, prior_mean: Tensor | float = 0.0
) -> update.Gaussian:
    """The Gaussian after one step.

    Args:
        q: the Gaussian before.
        grad: ghat.
        estimate: hhat of line 3, without the damping.
        hyper: this step's scalars, with `grad_weight` = 1 - beta1.
        prior_mean: m0.

    >>> q = update.Gaussian(torch.tensor([2.0]), momentum=torch.tensor([0.0]), hess=torch.tensor([1.0]))
    >>> hyper = Hyper(0.5, 1.0, damping=0.5, beta1=0.0, grad_weight=1.0, beta2=0.0, clip_radius=9.0, debias=1.0)
    >>> step(q, torch.tensor([1.0]), torch.tensor([0.5]), hyper)  # hhat = h; (1 + 2) / 2 half a step
    Gaussian(mean=tensor([1.2500]), momentum=tensor([3.]), hess=tensor([1.]))
    """
    momentum = update_momentum(q, grad, hyper, prior_mean)
    damped = update.saturate_(torch.add(estimate, hyper.damping))
    hess = update.update_hess(q.hess, damped, hyper.beta2, hyper.weight_decay)
    return update.Gaussian(update_mean(q.mean, momentum, hess, hyper, hyper.weight_decay), momentum, hess)


RULE = Rule(
    name="ivon_2021",
    state=("momentum", "hess"),
    initial={"hess": "hess_init"},
    curvature="hess",
    std=update.std,
    estimate=update.hess_estimate,
    step=lambda values, *rest: step(update.Gaussian(*values), *rest),
    restarts={"hess": "momentum"},
)
