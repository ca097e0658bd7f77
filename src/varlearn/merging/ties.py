"""TIES (Yadav et al., 2023): trim small changes, elect a sign, average the changes that have it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor


def ties(
    base: Tensor, models: Sequence[Tensor], weights: Sequence[float], alpha: float, bounds: Sequence[float]
) -> list[Tensor]:
    """c_t = alpha w_t k_t / sum_s w_s k_s, where k_t is 1 for the entries of model t that are kept, else 0.

    An entry is kept if its change is among the largest of this tensor and has the sign of sum_s w_s times the trimmed
    changes. The original trims all tensors of a model together; here each is trimmed by itself, as mergekit does, so
    that a merge needs one tensor at a time.

    Args:
        base: theta_0, or some of its entries.
        models: theta_t.
        weights: w_t >= 0.
        alpha: one factor >= 0 for all models.
        bounds: of each model, the smallest size of a change that is kept; see `trim_bound`.

    >>> base, first, second = torch.zeros(2), torch.tensor([3.0, 1.0]), torch.tensor([-1.0, 2.0])
    >>> [c.tolist() for c in ties(base, [first, second], [1.0, 1.0], 1.0, bounds=[0.0, 0.0])]
    [[1.0, 0.5], [0.0, 0.5]]
    """
    start = base.double()
    changes = [model.to(start) - start for model in models]
    scaled = [
        weight * torch.where(change.abs() >= bound, change, 0.0)
        for weight, change, bound in zip(weights, changes, bounds, strict=True)
    ]
    sign = torch.stack(scaled).sum(0).sign()
    kept = [weight * ((one.sign() == sign) & (sign != 0)).double() for weight, one in zip(weights, scaled, strict=True)]
    total = torch.stack(kept).sum(0)
    return [alpha * torch.where(total > 0, one / total, 0.0) for one in kept]


def trim_bound(sizes: Callable[[], Iterable[Tensor]], count: int, density: float) -> float:
    """The smallest size among the largest changes of a tensor, exactly. Ties in size are all kept.

    The sizes are gone through four times, each pass settling 16 of the 64 bits, so that they need not be in memory
    together: as integers, the bits of floats >= 0 are in the order of the floats.

    Args:
        sizes: gives |theta_t - theta_0| in float64, in pieces, each time it is called.
        count: how many there are.
        density: fraction of the entries to keep.

    >>> trim_bound(lambda: [torch.tensor([1.0, 4.0]).double(), torch.tensor([2.0, 3.0]).double()], 4, density=0.5)
    3.0
    """
    if count == 0 or density == 1:
        return 0.0
    found, left = 0, max(1, round(density * count))
    for shift in (48, 32, 16, 0):
        counts = torch.zeros(1 << 16, dtype=torch.int64)
        for piece in sizes():
            bits = piece.contiguous().view(torch.int64).flatten()
            if shift < 48:
                bits = bits[bits >> (shift + 16) == found]
            counts += ((bits >> shift) & 0xFFFF).bincount(minlength=1 << 16).cpu()
        from_top = counts.flip(0).cumsum(0)
        place = int((from_top >= left).nonzero()[0])
        left -= int(from_top[place - 1]) if place else 0
        found = found << 16 | (1 << 16) - 1 - place
    return torch.tensor(found).view(torch.float64).item()
