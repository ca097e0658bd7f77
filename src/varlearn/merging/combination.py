"""The last step of every merge: base and models, added up with coefficients, one tensor at a time."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

Coefficients = Sequence[Tensor | float]
"""One per model: a number, or one number per weight."""


def combine(base: Tensor, models: Sequence[Tensor], coefficients: Coefficients) -> Tensor:
    """theta_0 + sum_t c_t (theta_t - theta_0), computed in float64, in the dtype and on the device of `base`.

    The sum is written as (1 - sum_t c_t) theta_0 + sum_t c_t theta_t. One model with coefficient 1 thus gives exactly
    that model; with differences, float64 weights would be rounded.

    >>> combine(torch.tensor([1.0]), [torch.tensor([2.0]), torch.tensor([4.0])], [0.5, 1.0]).item()
    4.5
    """
    rest: Tensor | float = 1.0
    total = torch.zeros_like(base, dtype=torch.float64)
    for model, coefficient in zip(models, coefficients, strict=True):
        rest = rest - coefficient
        total += coefficient * model.to(total)
    return (total + rest * base.double()).to(base.dtype)
