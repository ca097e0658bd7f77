"""The normals of several keys, made together: an operation on a small tensor takes longer to launch than to do."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from varlearn.core.noise import interleave, normal_pairs, pair_counts, signed


def joined_normals(keys: Sequence[int], sizes: Sequence[int], dtype: torch.dtype, device: torch.device) -> list[Tensor]:
    """For each key its first normals, as many as its size says: what `normal_` gives, to the rounding of log and sine.

    Args:
        keys: from `derive_key`; at least one.
        sizes: number of normals of each.
        dtype: float32 or float64.
        device: of the result.

    Returns:
        A flat tensor for each key; all of them are parts of one, and none overlaps another.

    >>> from varlearn.core.noise import normal_
    >>> first, second = joined_normals([7, 9], [3, 2], torch.float32, torch.device("cpu"))
    >>> torch.allclose(first, normal_(torch.empty(3), 7)), torch.allclose(second, normal_(torch.empty(2), 9))
    (True, True)
    """
    pairs = [(size + 1) // 2 for size in sizes]
    counts = pair_counts(max(pairs), device)
    counter = torch.cat([counts[:count] for count in pairs])
    torch._foreach_add_(counter.split(pairs), [signed(key) for key in keys])
    normals = torch.empty(2 * len(counter), dtype=dtype, device=device)
    interleave(*normal_pairs(counter, dtype), normals)
    runs = normals.split([2 * count for count in pairs])
    return [run[:size] for run, size in zip(runs, sizes, strict=True)]
