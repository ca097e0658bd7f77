"""Tables in the device's memory, written from the host without waiting for the device."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import torch
from torch import Tensor

_DTYPES = {torch.int64: "q", torch.int32: "i", torch.float32: "f", torch.float64: "d"}


class DeviceTable:
    """Numbers that the kernels read. Writing the numbers that are there already does nothing.

    The copy goes through pinned memory, which PyTorch keeps until the device has read it. So the host does not wait,
    and may write again at once.

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
        with torch.inference_mode(False):
            self.tensor = torch.empty(0, dtype=dtype, device=device)

    def write(self, numbers: Sequence[float] | array) -> None:
        """Replace the content of the table."""
        words = numbers if isinstance(numbers, array) else array(self._code, numbers)
        if words == self._written:
            return
        with torch.inference_mode(False):
            if len(words) != len(self.tensor):
                self.tensor = torch.empty(len(words), dtype=self.tensor.dtype, device=self.tensor.device)
            if len(words):
                self.tensor.copy_(_pinned(words, self.tensor), non_blocking=True)
        self._written = words


def _pinned(words: array, like: Tensor) -> Tensor:
    source = torch.frombuffer(words, dtype=like.dtype)
    return source.pin_memory() if like.is_cuda else source
