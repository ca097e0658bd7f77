"""Small tensors, one after the other in one block of memory: an operation on the block is one, not one for each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from varlearn.optim.tasks import is_dense

# Elements per piece. On a CPU for each thread: half as many do not pay for the launches, four times as many leave the
# caches. Memory for temporaries is a few pieces, and must not grow with the threads of a large machine.
_CPU_PIECE = 3 << 16
_CPU_THREADS = 4
_JOINED = 8  # tensors so much smaller than a piece are worth the copies that joining them takes
_DEVICE_PIECE = 1 << 26


def piece_size(device: torch.device) -> int:
    """How many elements are computed together on a device."""
    return _CPU_PIECE * min(torch.get_num_threads(), _CPU_THREADS) if device.type == "cpu" else _DEVICE_PIECE


def is_small(tensor: Tensor, size: int) -> bool:
    """Whether a tensor is computed together with others, in pieces of this size."""
    return tensor.numel() <= size // _JOINED


def has_neighbours(tensor: Tensor) -> bool:
    """Whether a tensor should lie in one block with others: small, dense, and of even size, so that no gap follows it.

    >>> has_neighbours(torch.zeros(4)), has_neighbours(torch.zeros(3))
    (True, False)
    """
    return tensor.numel() % 2 == 0 and is_small(tensor, piece_size(tensor.device)) and is_dense(tensor)


class Layout:
    """How joined tensors lie one after the other: each begins at an even place, because noise comes in pairs.

    Attributes:
        count: of places.
        starts: for each tensor the number of its first pair of places.
        is_dense: whether every place is an element's; a tensor of odd size leaves one empty.

    >>> layout = Layout([(3,), (2, 2)])
    >>> layout.count, layout.starts, layout.is_dense
    (8, [0, 2], False)
    """

    def __init__(self, shapes: Sequence[tuple[int, ...]]) -> None:
        self._shapes = shapes
        self._sizes = [math.prod(shape) for shape in shapes]
        self._pairs = [(size + 1) // 2 for size in self._sizes]
        self.starts = [0, *accumulate(self._pairs)][:-1]
        self.count = 2 * sum(self._pairs)
        self.is_dense = self.count == sum(self._sizes)
        self._owners: dict[torch.device, Tensor] = {}

    def owners(self, device: torch.device) -> Tensor:
        """For each pair of places the number of the tensor that has it, int32."""
        if device not in self._owners:
            with torch.inference_mode(False):
                numbers = torch.arange(len(self._pairs), dtype=torch.int32)
                self._owners[device] = numbers.repeat_interleave(torch.tensor(self._pairs)).to(device)
        return self._owners[device]

    def parts(self, flat: Tensor) -> list[Tensor]:
        """The tensors' parts of a flat one, in their shapes."""
        places = zip(flat.split([2 * count for count in self._pairs]), self._sizes, self._shapes, strict=True)
        return [(part[:size] if size % 2 else part).view(shape) for part, size, shape in places]

    def whole(self, tensors: Sequence[Tensor]) -> Tensor | None:
        """The block of memory that dense tensors of these sizes fill, where they lie in this way; else None."""
        if not self.is_dense:
            return None
        first = tensors[0]
        itemsize = first.itemsize
        place = first.data_ptr()
        for tensor, size in zip(tensors, self._sizes, strict=True):
            if tensor.data_ptr() != place:
                return None
            place += size * itemsize
        if first.untyped_storage().nbytes() < (first.storage_offset() + self.count) * itemsize:
            return None
        return first.as_strided((self.count,), (1,))


def side_by_side(like: Sequence[Tensor]) -> list[Tensor]:
    """New tensors in the dtypes, shapes and strides of others; those with neighbours have one block of memory.

    Their values are anything.

    >>> first, second = side_by_side([torch.zeros(2, 2), torch.zeros(6)])
    >>> Layout([(2, 2), (6,)]).whole([first, second]).numel()
    10
    """
    blocks: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
    new: dict[int, Tensor] = {}
    with torch.inference_mode(False):
        for tensor in like:
            if has_neighbours(tensor):
                blocks.setdefault((tensor.device, tensor.dtype), []).append(tensor)
            else:
                strides = tensor.shape, tensor.stride()
                new[id(tensor)] = torch.empty_strided(*strides, dtype=tensor.dtype, device=tensor.device)
        for (device, dtype), tensors in blocks.items():
            sizes = [tensor.numel() for tensor in tensors]
            block = torch.empty(sum(sizes), dtype=dtype, device=device)
            for tensor, part in zip(tensors, block.split(sizes), strict=True):
                new[id(tensor)] = part.as_strided(tensor.shape, tensor.stride())
    return [new[id(tensor)] for tensor in like]


class Companions:
    """A tensor for each parameter, side by side where they are small.

    >>> weight = torch.zeros(2, 3)
    >>> companions = Companions()
    >>> (companion,) = companions.of([weight], like=[weight])
    >>> companion.shape, companions[weight] is companion
    (torch.Size([2, 3]), True)
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[Tensor, Tensor]] = {}  # by id: hashing a tensor is ten times slower

    def __getitem__(self, param: Tensor) -> Tensor:
        return self._known[id(param)][1]

    def of(self, params: Sequence[Tensor], like: Sequence[Tensor]) -> list[Tensor]:
        """The companions of parameters, in the layouts of `like`. If one of them has to be made, all are made anew."""
        known = [self._known.get(id(param)) for param in params]
        if all(each is not None and _same_layout(each[1], model) for each, model in zip(known, like, strict=True)):
            return [self[param] for param in params]
        new = side_by_side(like)
        self._known.update((id(param), (param, each)) for param, each in zip(params, new, strict=True))
        return new


def _same_layout(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and a.stride() == b.stride() and a.dtype == b.dtype and a.device == b.device
