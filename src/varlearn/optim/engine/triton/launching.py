"""Launches of kernels on some rows of a table: one program for each block of their elements."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from varlearn.optim.engine.triton import capturing
from varlearn.optim.engine.triton.device_tables import DeviceTable
from varlearn.optim.engine.triton.row_layout import BLOCK, THREADS

_PREPARED = 128  # rows that `prepare` takes at a time
_REMEMBERED = 32  # lists of blocks; with a mixture of experts other parameters have a gradient at every step


def options(warp_size: int) -> dict[str, Any]:
    """Options of the compiler, for a device whose warps have so many threads.

    A product and a sum are never fused: the bits are those of the interpreter, on every device.

    >>> options(32)
    {'num_warps': 8, 'enable_fp_fusion': False}
    """
    return {"num_warps": THREADS // warp_size, "enable_fp_fusion": False}


@functools.cache
def warp_size(device: torch.device) -> int:
    """Threads of a warp: 32 on GPUs of NVIDIA and on AMD's Radeon, 64 on AMD's Instinct.

    >>> warp_size(torch.device("cpu"))
    32
    """
    if device.type != "cuda":
        return 32
    usual = 64 if torch.version.hip else 32  # PyTorch did not always say
    return getattr(torch.cuda.get_device_properties(device), "warp_size", usual)


class Launcher:
    """Launches kernels on a device.

    Args:
        sizes: number of elements of each row.
        device: where the tensors are.

    Attributes:
        first: number of each row's first block.
        count: of all blocks.
    """

    def __init__(self, sizes: Sequence[int], device: torch.device) -> None:
        self._device = device
        self._counts = [-(-size // BLOCK) for size in sizes]
        self.first = [0]
        for count in self._counts:
            self.first.append(self.first[-1] + count)
        self.count = self.first.pop()
        self._blocks: dict[tuple[int, ...], Tensor] = {}  # of rows that were launched together
        self._captured: list[Tensor] = []  # those that replays of a CUDA graph read

    def run(self, kernel: Any, rows: DeviceTable, positions: Sequence[int], *tables: Any, **constants: Any) -> None:
        """Launch a kernel on the rows at some positions."""
        blocks = self._blocks_of(tuple(positions))
        if len(blocks):
            with self._on_device():
                how = options(warp_size(self._device))
                kernel[(len(blocks),)](rows.tensor, blocks, *tables, **constants, BLOCK=BLOCK, **how)

    def run_once(self, kernel: Any, *tables: Any, **constants: Any) -> None:
        """Launch a kernel in one program: it finds out what only the device knows."""
        with self._on_device():
            kernel[(1,)](*tables, **constants, BLOCK=_PREPARED, **options(warp_size(self._device)))

    def _blocks_of(self, positions: tuple[int, ...]) -> Tensor:
        """(row, number of the block in it) of all blocks of some rows, int32, on the device."""
        blocks = self._blocks.pop(positions, None)
        if blocks is None:
            capturing.refuse(self._device, "other parameters have a gradient than in the steps before")
            blocks = self._listed(positions)
        self._blocks[positions] = blocks  # the last one: what was not used for longest is forgotten first
        while len(self._blocks) > _REMEMBERED:
            del self._blocks[next(iter(self._blocks))]
        if capturing.is_capturing(self._device):
            self._captured.append(blocks)
        return blocks

    def _listed(self, positions: tuple[int, ...]) -> Tensor:
        """The blocks of some rows, copied to the device through pinned memory, so that the host does not wait."""
        with torch.inference_mode(False), torch.device("cpu"):
            counts = torch.tensor([self._counts[k] for k in positions], dtype=torch.int64)
            row = torch.tensor(positions, dtype=torch.int32).repeat_interleave(counts)
            number = torch.arange(len(row)) - (counts.cumsum(0) - counts).repeat_interleave(counts)
            blocks = torch.stack((row, number.int()), 1)
            source = blocks.pin_memory() if self._device.type == "cuda" else blocks
            return source.to(self._device, non_blocking=True)

    def _on_device(self) -> AbstractContextManager[Any]:
        return torch.cuda.device(self._device) if self._device.type == "cuda" else nullcontext()
