"""TIES (Yadav et al., 2023): trim small changes, elect a sign, average the changes that have it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def ties(
    base: Tensor, models: Sequence[Tensor], weights: Sequence[float], alpha: float, density: float
) -> list[Tensor]:
    """c_t = alpha w_t k_t / sum_s w_s k_s, where k_t is 1 for the entries of model t that are kept, else 0.

    An entry is kept if its change is among the largest of this tensor and has the sign of sum_s w_s times the trimmed
    changes. The original trims all tensors of a model together; here each is trimmed by itself, as mergekit does, so
    that a merge needs one tensor at a time.

    Args:
        base: theta_0.
        models: theta_t.
        weights: w_t >= 0.
        alpha: one factor >= 0 for all models.
        density: fraction of the entries that trimming keeps. Ties in size are all kept.

    >>> base, first, second = torch.zeros(2), torch.tensor([3.0, 1.0]), torch.tensor([-1.0, 2.0])
    >>> [c.tolist() for c in ties(base, [first, second], [1.0, 1.0], 1.0, density=1.0)]
    [[1.0, 0.5], [0.0, 0.5]]
    """
    changes = [_trimmed(model.to(base.device, torch.float64) - base.double(), density) for model in models]
    scaled = [weight * change for weight, change in zip(weights, changes, strict=True)]
    sign = torch.stack(scaled).sum(0).sign()
    kept = [weight * ((one.sign() == sign) & (sign != 0)).double() for weight, one in zip(weights, scaled, strict=True)]
    total = torch.stack(kept).sum(0)
    return [alpha * torch.where(total > 0, one / total, 0.0) for one in kept]


def _trimmed(change: Tensor, density: float) -> Tensor:
    """The largest entries, by size; 0 elsewhere."""
    if change.numel() == 0:
        return change
    size, count = change.abs(), max(1, round(density * change.numel()))
    smallest = size.flatten().kthvalue(change.numel() - count + 1).values
    return torch.where(size >= smallest, change, 0.0)
