"""Memory for temporaries, kept from piece to piece and from step to step."""

from __future__ import annotations

import threading
from typing import Protocol

import torch
from torch import Tensor

from varlearn.core.noise import PairWork

# Views that are remembered: to make one takes as long as an operation on some thousand numbers.
_VIEWS = 2048


class Layout(Protocol):
    """How several tensors lie one after the other in a flat one; hashed by identity."""

    count: int

    def parts(self, flat: Tensor) -> list[Tensor]:
        """These tensors, as views."""
        ...


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
        self._views: dict[tuple[int, torch.dtype, int | Layout], list[Tensor]] = {}

    def restart(self) -> None:
        """Everything that was handed out is free again."""
        self._taken = 0

    def take(self, count: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        """A flat tensor of `count` elements."""
        if device.type != "cpu":
            return torch.empty(count, dtype=dtype, device=device)
        return self._view(self._next_block(count * dtype.itemsize), dtype, count)[0]

    def take_joined(self, layout: Layout, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, list[Tensor]]:
        """A flat tensor, and its parts."""
        if device.type != "cpu":
            flat = torch.empty(layout.count, dtype=dtype, device=device)
            return flat, layout.parts(flat)
        index = self._next_block(layout.count * dtype.itemsize)
        return self._view(index, dtype, layout.count)[0], self._view(index, dtype, layout)

    def _next_block(self, size: int) -> int:
        """The number of a block of at least `size` bytes."""
        index = self._taken
        self._taken += 1
        if index == len(self._blocks) or self._blocks[index].numel() < size:
            self._views.clear()
            with torch.inference_mode(False):
                self._blocks[index : index + 1] = [torch.empty(size, dtype=torch.uint8, device="cpu")]
        return index

    def _view(self, index: int, dtype: torch.dtype, form: int | Layout) -> list[Tensor]:
        """A block as one tensor of `form` elements, or as the parts of a layout."""
        known = self._views.get((index, dtype, form))
        if known is None:
            if sum(len(views) for views in self._views.values()) > _VIEWS:
                self._views.clear()
            with torch.inference_mode(False):
                if isinstance(form, int):
                    known = [self._blocks[index][: form * dtype.itemsize].view(dtype)]
                else:
                    known = form.parts(self._view(index, dtype, form.count)[0])
            self._views[index, dtype, form] = known
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

    def joined(self, layout: Layout, dtype: torch.dtype) -> tuple[Tensor, list[Tensor]]:
        """The same, and the parts of it."""
        return _elements.take_joined(layout, dtype, self.device)

    def pairs(self, count: int, dtype: torch.dtype) -> PairWork:
        """For the transform of so many pairs of normals."""
        words = _pairs.take(count, torch.int64, self.device)
        return PairWork(words, *(_pairs.take(count, dtype, self.device) for _ in range(3)))
