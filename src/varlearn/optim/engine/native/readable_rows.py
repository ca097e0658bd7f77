"""Gradients as the kernels read them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from varlearn.core.memory_order import same_order
from varlearn.optim.engine.native.rule_kernels import is_readable
from varlearn.optim.engine.plan import Row

_FLOAT32, _STRIDED = torch.float32, torch.strided


class ReadableRows:
    """Finds the gradients of a step that lie in memory as their parameters do, and copies the others.

    Args:
        params: of the plan, by position.

    Attributes:
        converted: how many tensors of the last step were copied.

    >>> rows = ReadableRows([torch.zeros(2, 3)])
    >>> _ = rows.of([(0, torch.ones(3, 2).t(), None)])
    >>> rows.converted
    1
    """

    def __init__(self, params: Sequence[Tensor]) -> None:
        self.converted = 0
        self._params = params
        self._known_strides = [{param.stride()} for param in params]  # in the memory order of the parameter
        self._last: tuple[Sequence[Row], list[tuple[Tensor, Tensor | None]]] | None = None

    def of(self, rows: Sequence[Row]) -> list[tuple[Tensor, Tensor | None]]:
        """Gradient and hhat of each row. The answer for the last rows is kept until `forget`."""
        if self._last is not None and self._last[0] is rows:
            return self._last[1]
        self.converted = 0
        found: list[tuple[Tensor, Tensor | None]] = []
        known = self._known_strides
        for k, grad, hhat in rows:
            if (
                type(grad) is not Tensor
                or grad.dtype is not _FLOAT32
                or not grad.is_cpu
                or grad.layout is not _STRIDED
                or grad.stride() not in known[k]
                or grad.is_neg()
                or not grad.data_ptr()
            ):
                grad = self._in_order(k, grad)
            found.append((grad, hhat if hhat is None else self._in_order(k, hhat)))
        self._last = rows, found
        return found

    def forget(self) -> None:
        """Let go of the gradients of the last step."""
        self._last = None

    def _in_order(self, k: int, tensor: Tensor) -> Tensor:
        if is_readable(tensor) and same_order(self._params[k], tensor):
            self._known_strides[k].add(tensor.stride())
            return tensor
        self.converted += 1
        return torch.empty_like(self._params[k], requires_grad=False).copy_(tensor)
