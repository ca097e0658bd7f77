"""Merging rules that weigh the models by their curvature, one tensor at a time.

Curvatures belong to the sum of the losses over a model's data set, so that those of different data sets can be added.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

FLOOR = 1e-12
"""Keeps 0 / 0 out where no model has any curvature; the value of Daheim et al. (2024)."""


def hessian(base_hess: Tensor | float, hess: Sequence[Tensor], weights: Sequence[float], alpha: float) -> list[Tensor]:
    """c_t = a_t (h_0 + h_t) / (h_0 + sum_s a_s h_s) with a_t = alpha w_t (the paper's Section 4.3.2, where a_t = 1).

    Negative entries of h, which IVON's estimate can have, count as 0. `FLOOR` is added to h_0.

    Args:
        base_hess: h_0, float64.
        hess: h_t of each model, float64.
        weights: w_t >= 0.
        alpha: one factor >= 0 for all models.

    >>> import torch
    >>> first, second = torch.tensor([3.0]).double(), torch.tensor([1.0]).double()
    >>> [round(c.item(), 6) for c in hessian(4.0, [first, second], [1.0, 1.0], 1.0)]  # 7/8 and 5/8
    [0.875, 0.625]
    """
    positive = [one.clamp_min(0.0) for one in hess]
    prior = base_hess.clamp_min(0.0) + FLOOR if isinstance(base_hess, Tensor) else max(base_hess, 0.0) + FLOOR
    factors = [alpha * weight for weight in weights]
    total = prior + sum(factor * one for factor, one in zip(factors, positive, strict=True))
    return [factor * ((prior + one) / total) for factor, one in zip(factors, positive, strict=True)]


def fisher(hess: Sequence[Tensor], weights: Sequence[float], alpha: float) -> list[Tensor]:
    """c_t = alpha w_t f_t / sum_s w_s f_s: the average weighted by curvature (Matena and Raffel, 2022).

    Entries of f below `FLOOR` count as `FLOOR`.

    >>> import torch
    >>> [c.item() for c in fisher([torch.tensor([3.0]), torch.tensor([1.0])], [1.0, 1.0], 1.0)]
    [0.75, 0.25]
    """
    scaled = [weight * one.clamp_min(FLOOR) for weight, one in zip(weights, hess, strict=True)]
    total = sum(scaled)
    return [alpha * (one / total) for one in scaled]
