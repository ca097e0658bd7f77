"""Tables in the device's memory, written from the host without waiting for the device."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import torch
from torch import Tensor

from varlearn.optim.engine.triton import capturing

_DTYPES = {torch.int64: "q", torch.int32: "i", torch.float32: "f", torch.float64: "d"}


_SPARES = 4  # a step writes the rows of a sample at most so often


class DeviceTable:
    """Numbers that the kernels read. Writing the numbers that are there already does nothing.

    The copy goes through pinned memory, which PyTorch keeps until the device has read it. So the host does not wait,
    and may write again at once. A copy that is captured in a CUDA graph is made again by each replay, from memory that
    was set aside for it before and is never written again.

    Args:
        dtype: of the numbers.
        device: where the kernels run.

    >>> table = DeviceTable(torch.int32, torch.device("cpu"))
    >>> table.write([1, 2, 3])
    >>> table.tensor
    tensor([1, 2, 3], dtype=torch.int32)
    """

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self._code = _DTYPES[dtype]
        self._written: array | None = None
        self._spares: list[Tensor] = []  # for a capture, in which no memory can be had
        self._captured: list[Tensor] = []
        with torch.inference_mode(False):
            self.tensor = torch.empty(0, dtype=dtype, device=device)

    def write(self, numbers: Sequence[float] | array) -> None:
        """Replace the content of the table."""
        words = numbers if isinstance(numbers, array) else array(self._code, numbers)
        is_captured = capturing.is_capturing(self.tensor.device)
        if words == self._written and not self._captured and not is_captured:
            return
        with torch.inference_mode(False):
            if is_captured:
                self.tensor.copy_(self._kept(words), non_blocking=True)
            else:
                self._write_now(words)
        self._written = words

    def _write_now(self, words: array) -> None:
        if len(words) != len(self.tensor):
            if self._captured:
                raise RuntimeError("parameters changed after a CUDA graph of the step was captured; capture it again")
            self.tensor = torch.empty(len(words), dtype=self.tensor.dtype, device=self.tensor.device)
        if len(words):
            self.tensor.copy_(_pinned(words, self.tensor), non_blocking=True)
        self._spares = [spare for spare in self._spares if len(spare) == len(words)]
        while len(self._spares) < _SPARES:
            is_pinned = self.tensor.is_cuda
            self._spares.append(torch.empty(len(words), dtype=self.tensor.dtype, device="cpu", pin_memory=is_pinned))

    def _kept(self, words: array) -> Tensor:
        """The words in pinned memory that stays as it is as long as the table."""
        if not self._spares or len(self._spares[-1]) != len(words):
            capturing.refuse(self.tensor.device, "its tables are of another size")
        spare = self._spares.pop()
        if len(words):
            spare.copy_(torch.frombuffer(words, dtype=spare.dtype))
        self._captured.append(spare)
        return spare


def _pinned(words: array, like: Tensor) -> Tensor:
    source = torch.frombuffer(words, dtype=like.dtype)
    return source.pin_memory() if like.is_cuda else source
