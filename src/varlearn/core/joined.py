"""The normals of several keys, made together: an operation on a small tensor takes longer to launch than to do."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from varlearn.core.noise import GOLDEN, interleave, normal_pairs, signed


class Layout(NamedTuple):
    """How runs of normals that belong to several keys lie one after the other.

    Attributes:
        counts: (j + 1) * GOLDEN for the pairs j of each run, int64.
        pairs: of each run.
        position: where the elements are among the normals; None where no run has an odd size, and they follow.
    """

    counts: Tensor
    pairs: list[int]
    position: Tensor | None


@lru_cache(maxsize=64)
def layout(sizes: tuple[int, ...], device: torch.device) -> Layout:
    """The layout of runs of these sizes.

    >>> layout((3, 2), torch.device("cpu")).position
    tensor([0, 1, 2, 4, 5])
    """
    pairs = [(size + 1) // 2 for size in sizes]
    counts = torch.cat([torch.arange(1, count + 1) for count in pairs]).mul_(signed(GOLDEN))
    position = None
    if any(size % 2 for size in sizes):
        firsts = itertools.accumulate(pairs, initial=0)
        position = torch.cat([torch.arange(size) + 2 * first for size, first in zip(sizes, firsts, strict=False)])
        position = position.to(device)
    return Layout(counts.to(device), pairs, position)


def joined_normals(
    keys: Sequence[int], sizes: Sequence[int], dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, ...]:
    """For each key its first normals, as many as its size says: what `normal_` gives, to the rounding of log and sine.

    Args:
        keys: from `derive_key`.
        sizes: number of normals of each.
        dtype: float32 or float64.
        device: of the result.

    Returns:
        A flat tensor for each key; all of them are parts of one.

    >>> from varlearn.core.noise import normal_
    >>> first, second = joined_normals([7, 9], [3, 2], torch.float32, torch.device("cpu"))
    >>> torch.allclose(first, normal_(torch.empty(3), 7)), torch.allclose(second, normal_(torch.empty(2), 9))
    (True, True)
    """
    counts, pairs, position = layout(tuple(sizes), device)
    counter = counts.clone()
    torch._foreach_add_(counter.split(pairs), [signed(key) for key in keys])
    normals = torch.empty(2 * len(counter), dtype=dtype, device=device)
    interleave(*normal_pairs(counter, dtype), normals)
    return (normals if position is None else normals[position]).split(list(sizes))
