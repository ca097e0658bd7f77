"""Gradients and hhat as the Triton kernels read them: where backward left them if possible, else copied."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from varlearn.core.memory_order import same_order
from varlearn.core.shards import PLAIN
from varlearn.optim.engine.plan import Row

READABLE = (torch.float32, torch.bfloat16, torch.float16)

# Position, gradient, hhat.
Readable = list[tuple[int, Tensor, Tensor | None]]


def is_readable(tensor: Tensor, part: Tensor, dtypes: Sequence[torch.dtype] = READABLE) -> bool:
    """Whether a kernel can read a tensor in the memory order of `part`: no subclass, no lazy negation, no gaps.

    >>> weight = torch.zeros(2, 3)
    >>> is_readable(torch.zeros(2, 3).half(), weight), is_readable(torch.zeros(3, 2).t(), weight)
    (True, False)
    """
    return (
        type(tensor) in PLAIN
        and tensor.dtype in dtypes
        and tensor.device == part.device
        and tensor.layout is torch.strided
        and same_order(part, tensor)
        and not tensor.is_neg()
        and (tensor.data_ptr() != 0 or tensor.numel() == 0)
    )


class GradientReader:
    """Makes the gradients of a step readable, once for the look for NaN and the step.

    Args:
        parts: the parameters; of sharded ones this rank's parts.

    Attributes:
        converted: how many gradients of the last rows were copied.
    """

    def __init__(self, parts: Sequence[Tensor]) -> None:
        self._parts, self.converted = parts, 0
        self._last: tuple[Sequence[Row], Readable] | None = None

    def read(self, rows: Sequence[Row]) -> Readable:
        """Position, gradient and hhat of each row as the kernels read them."""
        if self._last is not None and self._last[0] is rows:
            return self._last[1]
        self.converted = 0
        found: Readable = []
        for k, grad, hhat in rows:
            if not is_readable(grad, self._parts[k]):
                grad = self._copy(k, grad)
            if hhat is not None and not is_readable(hhat, self._parts[k], (torch.float32,)):
                hhat = self._copy(k, hhat)
            found.append((k, grad, hhat))
        self._last = rows, found
        return found

    def forget(self) -> None:
        """After a step: its gradients are not needed again."""
        self._last = None

    def _copy(self, k: int, values: Tensor) -> Tensor:
        self.converted += 1
        return torch.empty_like(self._parts[k], dtype=torch.float32, requires_grad=False).copy_(values)
