"""What the arithmetic is asked to do to one parameter: draw a sample into it, or take a step.

The optimizer turns its groups and state into lists of these; `loop`, `packed` and `native` carry them out, each in its
own way, all with the rule of `core.update` on the noise of `core.noise`.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from varlearn.core.noise import Grid
from varlearn.core.update import Hyper

Approximation = Literal["reparam", "squared_gradient"]


class Noise(NamedTuple):
    """Which noise perturbs a parameter, and the scale it had when it was drawn.

    Attributes:
        key: of `core.noise`; elements are numbered in the memory order of the parameter.
        ess: lambda at the draw.
        weight_decay: delta at the draw.
        grid: the numbers of the elements, where a part of a larger tensor is not one run of them; then only `loop`
            knows what to do.
    """

    key: int
    ess: float
    weight_decay: float
    grid: Grid | None = None

    @property
    def scale(self) -> tuple[float, float]:
        """(lambda, delta), of which sigma is made."""
        return self.ess, self.weight_decay


class Draw(NamedTuple):
    """Write m + sign * sigma * epsilon into a parameter.

    Attributes:
        param: receives the sample, rounded to its dtype.
        mean: m in the state's dtype. The same object as `param` where the sample is to be added in place.
        hess: h, in the state's dtype and the parameter's memory order.
        noise: epsilon and the scale of sigma.
        sign: +1, or -1 to take a sample out again.
        score: receives epsilon / sigma, so that the step need not make the noise again; None where it does.
    """

    param: Tensor
    mean: Tensor
    hess: Tensor
    noise: Noise
    sign: float = 1.0
    score: Tensor | None = None


class Step(NamedTuple):
    """Lines 3 to 7 of Algorithm 1 for one parameter.

    Attributes:
        param: receives the new mean, rounded to its dtype.
        mean: m in the state's dtype, updated in place. The same object as `param` where the dtypes agree.
        momentum: g, updated in place.
        hess: h, updated in place.
        grad: what was accumulated, of any float dtype.
        approximation: how hhat is made of one sample: from `grad` and `noise`, or from `grad` alone.
        estimate: hhat where it is already there (several samples, or the caller's own), else None.
        noise: what perturbed the parameter when `grad` was taken.
        prior_mean: m0, a tensor or a number.
        grad_factor: multiplies `grad` before anything else (loss scale, sign).
        clip_factor: multiplies ghat in the momentum only, not in hhat.
        hyper: the step's scalars.
        score: epsilon / sigma of `noise`, where the draw kept it.
    """

    param: Tensor
    mean: Tensor
    momentum: Tensor
    hess: Tensor
    grad: Tensor
    approximation: Approximation
    estimate: Tensor | None
    noise: Noise
    prior_mean: Tensor | float
    grad_factor: float
    clip_factor: float
    hyper: Hyper
    score: Tensor | None = None


class Fold(NamedTuple):
    """Fold one more sample of a step into the running means of ghat and hhat.

    Attributes:
        grad: of this sample, of any float dtype.
        grad_mean: over the earlier samples, updated in place; None where only hhat is wanted.
        estimate_mean: of hhat over the earlier samples, updated in place; in the state's dtype.
        hess: h.
        approximation: how hhat is made, as in `Step`.
        noise: what perturbed the parameter in this sample.
        count: how many earlier samples there are.
        captured: receives a copy of the new `grad_mean`; None where it is not wanted.
    """

    grad: Tensor
    grad_mean: Tensor | None
    estimate_mean: Tensor
    hess: Tensor
    approximation: Approximation
    noise: Noise
    count: int
    captured: Tensor | None = None


def state_dtype(param: Tensor) -> torch.dtype:
    """The dtype of hess and momentum: float64 for float64 parameters, float32 for all others.

    In bfloat16 an average with beta2 = 1 - 1e-5 would never move.

    >>> state_dtype(torch.zeros(1, dtype=torch.bfloat16))
    torch.float32
    """
    return torch.float64 if param.dtype == torch.float64 else torch.float32


def is_dense(tensor: Tensor) -> bool:
    """Whether the elements fill a block of memory, in any order of the dimensions.

    >>> is_dense(torch.zeros(3, 4).t()), is_dense(torch.zeros(3, 4)[:, ::2])
    (True, False)
    """
    if tensor.is_contiguous():
        return True
    expected = 1
    dims = [(stride, size) for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1]
    for stride, size in sorted(dims):
        if stride != expected:
            return False
        expected *= size
    return True
