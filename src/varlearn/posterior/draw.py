"""Standard normal numbers for the named tensors of a posterior, from a seed or a generator."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from varlearn.core.dtypes import state_dtype
from varlearn.core.joined import joined_normals
from varlearn.core.noise import derive_key
from varlearn.core.shards import is_sharded, normal_like
from varlearn.types import Params, Seed

# Streams of the stateless noise that belong to posteriors. Training noise has its own, so the same seed in the
# optimizer and in prediction never gives the same numbers.
WEIGHTS, FACTORS, CHOICE, DROPOUT = 101, 102, 103, 104

# Elements above which a tensor's noise is made by itself.
_LARGE = 1 << 17


def positions(names: Iterable[str]) -> dict[str, int]:
    """The index of each tensor's noise: its rank among the sorted names, so that the order of a dict is irrelevant.

    >>> positions(["head.weight", "body.weight"])
    {'body.weight': 0, 'head.weight': 1}
    """
    return {name: rank for rank, name in enumerate(sorted(names))}


def normals(like: Tensor, seed: Seed, index: int, position: int = 0, stream: int = WEIGHTS) -> Tensor:
    """Standard normals of `like`'s shape and device, in float32 (float64 for a float64 tensor).

    A sharded tensor gets its ranks' parts of the numbers that the whole one gets.

    Args:
        like: gives shape, device, precision and sharding.
        seed: an integer (then `index` and `position` choose the numbers), or a generator that is consumed.
        index: number of the sample.
        position: of the tensor, from `positions`.
        stream: what the numbers are for.

    >>> torch.equal(normals(torch.zeros(3), seed=1, index=2), normals(torch.ones(3), seed=1, index=2))
    True
    """
    dtype = state_dtype(like)
    if isinstance(seed, torch.Generator):
        if is_sharded(like):
            raise ValueError(
                "seed=Generator gives each rank other numbers, and shards need a common sample; pass an int"
            )
        return torch.randn(like.shape, generator=seed, device=seed.device, dtype=dtype).to(like.device)
    key = derive_key(seed, draw=index, index=position, stream=stream)
    return normal_like(like, key, dtype)


def normals_by_name(like: Params, seed: Seed, index: int) -> Params:
    """`normals` for every tensor of a posterior, each at its place among the names; small ones together.

    >>> tensors = {"b": torch.zeros(3), "a": torch.zeros(2)}
    >>> torch.allclose(normals_by_name(tensors, 1, 2)["b"], normals(tensors["b"], 1, 2, position=1))
    True
    """
    if isinstance(seed, torch.Generator):
        return {name: normals(tensor, seed, index) for name, tensor in like.items()}
    rank = positions(like)
    found: Params = {}
    small: dict[tuple[torch.dtype, torch.device], list[str]] = {}
    for name, tensor in like.items():
        if is_sharded(tensor) or tensor.numel() > _LARGE:
            found[name] = normals(tensor, seed, index, rank[name])
        else:
            small.setdefault((state_dtype(tensor), tensor.device), []).append(name)
    for (dtype, device), names in small.items():
        keys = [derive_key(seed, draw=index, index=rank[name], stream=WEIGHTS) for name in names]
        parts = joined_normals(keys, [like[name].numel() for name in names], dtype, device)
        found |= {name: part.view(like[name].shape) for name, part in zip(names, parts, strict=True)}
    return found


def uniform(seed: Seed, index: int, stream: int = CHOICE) -> float:
    """One number in [0, 1]: the normal distribution function of one normal.

    >>> 0.0 <= uniform(seed=0, index=0) <= 1.0
    True
    """
    number = normals(torch.zeros((), dtype=torch.float64), seed, index, stream=stream).item()
    return 0.5 * math.erfc(-number / math.sqrt(2.0))
