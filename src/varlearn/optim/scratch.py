"""Memory for temporaries, kept from piece to piece and from step to step."""

from __future__ import annotations

import threading

import torch
from torch import Tensor

from varlearn.core.noise import PairWork

# Views that are remembered: to make one takes as long as an operation on some thousand numbers.
_VIEWS = 128


class Scratch(threading.local):
    """Blocks of memory, handed out one after the other; `restart` hands out the first one again.

    A temporary in memory that was used a moment ago is in the cache. One that was just allocated is not, and its first
    use takes three times as long. This is for CPUs; the allocators of other devices reuse memory, and are left to it.
    What is handed out may hold anything. Each thread has its own.

    >>> scratch, cpu = Scratch(), torch.device("cpu")
    >>> first = scratch.take(4, torch.float32, cpu)
    >>> scratch.restart()
    >>> first.data_ptr() == scratch.take(2, torch.int64, cpu).data_ptr()
    True
    """

    def __init__(self) -> None:
        self._blocks: list[Tensor] = []
        self._taken = 0
        self._views: dict[tuple[int, int, torch.dtype], Tensor] = {}

    def restart(self) -> None:
        """Everything that was handed out is free again."""
        self._taken = 0

    @torch.inference_mode(False)
    def take(self, count: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        """A flat tensor of `count` elements."""
        if device.type != "cpu":
            return torch.empty(count, dtype=dtype, device=device)
        index, size = self._taken, count * dtype.itemsize
        self._taken += 1
        if index == len(self._blocks) or self._blocks[index].numel() < size:
            self._views.clear()
            self._blocks[index : index + 1] = [torch.empty(size, dtype=torch.uint8, device="cpu")]
        known = self._views.get((index, count, dtype))
        if known is None:
            if len(self._views) == _VIEWS:
                self._views.clear()
            known = self._views[index, count, dtype] = self._blocks[index][:size].view(dtype)
        return known


# A thread's share of n numbers lies elsewhere than its share of n / 2 numbers in the same memory, and what another core
# has written is slow to get. So there is memory for elements, and memory for pairs of them.
_elements, _pairs = Scratch(), Scratch()


class Memory:
    """Memory for the temporaries of one piece on a device; it ends with the next `Memory`."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        _elements.restart()
        _pairs.restart()

    def elements(self, count: int, dtype: torch.dtype) -> Tensor:
        """For one number of each element."""
        return _elements.take(count, dtype, self.device)

    def pairs(self, count: int, dtype: torch.dtype) -> PairWork:
        """For the transform of so many pairs of normals."""
        words = _pairs.take(count, torch.int64, self.device)
        return PairWork(words, *(_pairs.take(count, dtype, self.device) for _ in range(3)))
