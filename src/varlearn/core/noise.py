"""Standard normal noise as a function: a key and a position decide each number.

A stream of random numbers has a state that must be saved, is consumed by every reader, and can only be produced in
order. A function has none of these troubles: a resumed run draws what the uninterrupted run would have drawn, a
regenerated sample equals the first one, a shard computes its own part, and PyTorch's global generator is never touched.

The construction is SplitMix64 used as a counter-based generator, followed by Box and Muller's transform. Pair `j` of a
key hashes the 64-bit counter `key + (j + 1) * GOLDEN`; the upper 31 bits give the radius, the lower 32 the angle::

    u = (upper + 1/2) / 2^31        r = sqrt(-2 log u)        a = 2 pi * lower / 2^32  in [-pi, pi)
    normal[2j] = r cos(a)           normal[2j + 1] = r sin(a)

The smallest `u` is 2^-32, so numbers reach 6.66 standard deviations, as they should once in about 4 * 10^10 draws.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from varlearn.core.dtypes import state_dtype

GOLDEN = 0x9E3779B97F4A7C15
_MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_MIX_LAST_SHIFT = 31
_WORD = (1 << 64) - 1

# Numbers are made in blocks that stay in a core's cache; accelerators take a tensor whole.
_CPU_BLOCK = 1 << 18


def derive_key(seed: int, draw: int, replica: int = 0, index: int = 0, stream: int = 0) -> int:
    """Fold the coordinates of a noise tensor into one 64-bit key.

    Args:
        seed: the run's seed, any integer (taken modulo 2^64).
        draw: which sample of the weights.
        replica: which of several processes that draw independent samples.
        index: which parameter tensor.
        stream: which use, so that evaluation never repeats what training draws.

    Returns:
        An integer in [0, 2^64). The order of the coordinates matters.

    >>> derive_key(0, 1) == derive_key(0, 1)
    True
    >>> len(
    ...     {derive_key(0, 1), derive_key(1, 0), derive_key(0, 0, 1), derive_key(0, 0, 0, 1), derive_key(0, 0, 0, 0, 1)}
    ... )
    5
    """
    key = 0
    for part in (seed, stream, draw, replica, index):
        key = fold_in(key, part)
    return key


def fold_in(key: int, part: int) -> int:
    """The key of one more coordinate: `derive_key` folds in seed, stream, draw, replica and index, in this order.

    >>> fold_in(derive_key(3, 5, index=0), 1) == derive_key(3, 5, index=1)
    False
    """
    return _mix((key ^ part) + GOLDEN)


def normal_(out: Tensor, key: int, offset: int = 0) -> Tensor:
    """Fill `out` with the normals number `offset`, `offset + 1`, ... of `key`, in row-major order.

    Args:
        out: contiguous float tensor of any shape on any device.
        key: from `derive_key`.
        offset: position of `out`'s first element; a shard passes its own.

    Returns:
        `out`.

    >>> whole = normal_(torch.empty(10), key=7)
    >>> part = normal_(torch.empty(3), key=7, offset=5)
    >>> torch.equal(whole[5:8], part)
    True
    """
    if not out.is_contiguous():
        raise ValueError(
            f"normal_ fills contiguous tensors, got strides {tuple(out.stride())}; fill a contiguous one and copy"
        )
    flat = out.view(-1)
    if out.device.type != "cpu":
        _fill(flat, key, offset)
        return out
    for start in range(0, flat.numel(), _CPU_BLOCK):
        _fill(flat[start : start + _CPU_BLOCK], key, offset + start)
    return out


class Grid(NamedTuple):
    """A part of a tensor that takes some indices along each dimension.

    Attributes:
        indices: for each dimension, which of the whole tensor's indices the part has, int64 of shape (size,).
        strides: of the whole tensor. Element (i, j, ...) of the part has the number sum of indices * strides.
    """

    indices: tuple[Tensor, ...]
    strides: tuple[int, ...]


def normal_on_grid(grid: Grid, key: int, dtype: torch.dtype, device: torch.device | str = "cpu") -> Tensor:
    """The normals of `key` that a part of a tensor has, whatever part it is: what a shard needs.

    Args:
        grid: which elements, of a tensor of at least one dimension.
        key: from `derive_key`.
        dtype: of the result.
        device: of the result.

    Returns:
        A contiguous tensor with one dimension for each of the grid's.

    >>> whole = normal_(torch.empty(4, 6), key=7)
    >>> right_half = Grid((torch.arange(4), torch.arange(3, 6)), (6, 1))
    >>> torch.equal(whole[:, 3:], normal_on_grid(right_half, 7, torch.float32))
    True
    """
    shape = tuple(len(index) for index in grid.indices)
    out = torch.empty(shape, dtype=dtype, device=device)
    if out.numel() == 0:
        return out
    ahead, *others = (
        (index.to(device) * stride).view(-1, *[1] * (len(shape) - 1 - dim))
        for dim, (index, stride) in enumerate(zip(grid.indices, grid.strides, strict=True))
    )
    across = sum(others, torch.zeros((), dtype=torch.int64, device=device))
    rows = len(ahead) if out.device.type != "cpu" else max(1, _CPU_BLOCK * len(ahead) // out.numel())
    for part, numbers in zip(out.split(rows), ahead.split(rows), strict=True):
        numbers = numbers + across
        odd = numbers % 2 == 1
        counter = numbers.div_(2, rounding_mode="floor").add_(1).mul_(signed(GOLDEN)).add_(signed(key))
        cosine, sine = normal_pairs(counter, state_dtype(out))
        part.copy_(torch.where(odd, sine, cosine))
    return out


def advanced(key: int, pairs: int) -> int:
    """The key whose normals begin `pairs` pairs, 2 * pairs numbers, later.

    >>> torch.equal(normal_(torch.empty(4), advanced(7, 3)), normal_(torch.empty(4), 7, offset=6))
    True
    """
    return (key + pairs * GOLDEN) & _WORD


def _fill(flat: Tensor, key: int, offset: int) -> None:
    first, odd = divmod(offset, 2)
    last = (offset + flat.numel() + 1) // 2
    counter = torch.arange(first + 1, last + 1, device=flat.device).mul_(signed(GOLDEN)).add_(signed(key))
    dtype = state_dtype(flat)
    cosine, sine = normal_pairs(counter, dtype)
    if flat.dtype == dtype and not odd and flat.numel() % 2 == 0:
        interleave(cosine, sine, flat)
    elif odd:
        flat[0::2] = sine[: (flat.numel() + 1) // 2]
        flat[1::2] = cosine[1 : 1 + flat.numel() // 2]
    else:
        flat[0::2] = cosine
        flat[1::2] = sine[: flat.numel() // 2]


def normal_pairs(counter: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The two normals of each 64-bit counter.

    Args:
        counter: int64 tensor holding key + (j + 1) * GOLDEN modulo 2^64 for the pairs j; overwritten.
        dtype: float32 or float64, in which the transform is done.

    Returns:
        (normal[2j], normal[2j + 1]), each of `counter`'s shape.
    """
    bits, shifted = counter, torch.empty_like(counter)
    for shift, factor in _MIX:
        bits.bitwise_xor_(_shift_right(bits, shift, shifted)).mul_(signed(factor))
    # The last shift of the mix leaves the upper 31 bits alone; of what it adds to them the lower 32 see nothing.
    upper = _shift_right(bits, 33, shifted)
    inverse_radius = upper.to(dtype).add_(0.5).mul_(2.0**-31).log_().mul_(-2.0).rsqrt_()
    bits.bitwise_xor_(torch.bitwise_right_shift(bits, _MIX_LAST_SHIFT, out=shifted))
    angle = bits.to(torch.int32).to(dtype).mul_(2.0 * math.pi * 2.0**-32)
    cosine = torch.cos(angle)
    # Dividing by 1 / r instead of multiplying with r: torch's rsqrt takes two thirds of the time of its sqrt.
    return cosine.div_(inverse_radius), angle.sin_().div_(inverse_radius)


def interleave(first: Tensor, second: Tensor, out: Tensor) -> Tensor:
    """Write two flat tensors into the even and the odd places of a third one.

    >>> interleave(torch.tensor([1.0, 3.0]), torch.tensor([2.0, 4.0]), out=torch.empty(4))
    tensor([1., 2., 3., 4.])
    """
    if out.storage_offset() % 2:
        out[0::2], out[1::2] = first, second
    else:  # a complex tensor can lie there, and is written in half the time
        torch.complex(first, second, out=torch.view_as_complex(out.view(-1, 2)))
    return out


def pair_counts(pairs: int, device: torch.device) -> Tensor:
    """(j + 1) * GOLDEN for the first pairs j: added to a key, the counters of its normals.

    >>> cosine, sine = normal_pairs(pair_counts(2, torch.device("cpu")) + 7, torch.float32)
    >>> torch.equal(torch.stack((cosine, sine), -1).view(-1), normal_(torch.empty(4), key=7))
    True
    """
    return torch.arange(1, pairs + 1, device=device).mul_(signed(GOLDEN))


def signed(word: int) -> int:
    """The int64 with the bits of a 64-bit word.

    >>> signed((1 << 64) - 1)
    -1
    """
    return word - (1 << 64) if word >> 63 else word


def _shift_right(bits: Tensor, by: int, out: Tensor) -> Tensor:
    """Logical shift into `out`: int64's own `>>` repeats the sign bit."""
    return torch.bitwise_right_shift(bits, by, out=out).bitwise_and_((1 << (64 - by)) - 1)


def _mix(word: int) -> int:
    word &= _WORD
    for shift, factor in _MIX:
        word = (word ^ (word >> shift)) * factor & _WORD
    return word ^ (word >> _MIX_LAST_SHIFT)
