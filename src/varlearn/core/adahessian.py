"""AdaHessian (Yao et al., 2021) as functions on tensors: Adam with the Hessian's diagonal in place of the gradient.

With D Hutchinson's estimate z * (H z) of the diagonal, and k the Hessian power::

    m <- beta1 m + (1 - beta1) ghat,    v <- beta2 v + (1 - beta2) D^2
    theta <- (1 - alpha delta) theta - alpha mhat / (vhat^(k/2) + eps)

mhat and vhat are debiased. D is not averaged over neighbouring weights, as in the paper's comparison.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from varlearn.core import update
from varlearn.core.rule import Rule, no_std


class Hyper(NamedTuple):
    """The scalars of one step, for one parameter.

    Attributes:
        lr: the learning rate.
        beta1: decay of the gradient's average.
        beta2: decay of the squared diagonal's average.
        eps: added to the denominator.
        weight_decay: decoupled decay.
        hessian_power: k.
        step: number of the step, from 1.
    """

    lr: float
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    hessian_power: float
    step: int


class Moments(NamedTuple):
    """What a step updates: the weights, and the averages of the gradient and of the squared diagonal."""

    mean: Tensor
    exp_avg: Tensor
    exp_hessian_diag_sq: Tensor


def step(q: Moments, grad: Tensor, diagonal: Tensor, hyper: Hyper) -> Moments:
    """Weights and averages after one step.

    Args:
        q: those before.
        grad: the gradient.
        diagonal: D.
        hyper: this step's scalars.

    >>> q = Moments(torch.tensor([1.0]), torch.zeros(1), torch.zeros(1))
    >>> hyper = Hyper(0.5, beta1=0.9, beta2=0.999, eps=0.0, weight_decay=0.0, hessian_power=1.0, step=1)
    >>> step(q, torch.tensor([4.0]), torch.tensor([-4.0]), hyper).mean  # half a step of Newton, with |D|
    tensor([0.5000])
    """
    mean = q.mean * (1.0 - hyper.lr * hyper.weight_decay)
    exp_avg = torch.lerp(q.exp_avg, grad, 1.0 - hyper.beta1)
    squares = (q.exp_hessian_diag_sq * hyper.beta2).addcmul_(diagonal, diagonal, value=1.0 - hyper.beta2)
    update.saturate_(squares)
    debiased = squares / (1.0 - hyper.beta2**hyper.step)
    denominator = debiased.pow_(0.5 * hyper.hessian_power).add_(hyper.eps)
    # Where neither gradient nor curvature is known, eps = 0 divides 0 by 0: such a weight stays.
    direction = torch.where(exp_avg == 0.0, 0.0, exp_avg / denominator)
    mean.add_(update.saturate_(direction), alpha=-hyper.lr / (1.0 - hyper.beta1**hyper.step))
    return Moments(update.saturate_(mean), exp_avg, squares)


RULE = Rule(
    name="adahessian",
    state=("exp_avg", "exp_hessian_diag_sq"),
    initial={},
    curvature="exp_hessian_diag_sq",
    std=no_std,
    estimate=lambda approximation, grad, *rest: torch.zeros_like(grad),  # every diagonal is handed in
    step=lambda values, grad, diagonal, hyper, prior_mean: step(Moments(*values), grad, diagonal, hyper),
    has_products=False,
    restarts={"exp_hessian_diag_sq": "exp_avg"},
)
