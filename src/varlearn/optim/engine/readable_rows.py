"""Gradients and hhat as kernels read them: where backward left them if possible, else copied."""

from __future__ import annotations

from collections.abc import Container, Sequence

import torch
from torch import Tensor

from varlearn.core.memory_order import same_order
from varlearn.core.shards import PLAIN
from varlearn.optim.engine.plan import Row

_FLOAT32, _STRIDED = torch.float32, torch.strided


def is_readable(tensor: Tensor, like: Tensor, dtypes: Container[torch.dtype] = (_FLOAT32,)) -> bool:
    """Whether a kernel can read a tensor by address, in the memory order of `like`.

    It must not be a subclass, sparse, to be negated when it is read, or a zero without memory: all of these autograd
    may leave.

    >>> weight = torch.zeros(2, 3)
    >>> is_readable(torch.zeros(2, 3), weight), is_readable(torch.zeros(3, 2).t(), weight)
    (True, False)
    """
    return (
        type(tensor) in PLAIN
        and tensor.dtype in dtypes
        and tensor.device == like.device
        and tensor.layout is _STRIDED
        and same_order(like, tensor)
        and not tensor.is_neg()
        and (tensor.data_ptr() != 0 or tensor.numel() == 0)
    )


class ReadableRows:
    """Finds the gradients of a step that lie in memory as their parameters do, and copies the others to float32.

    Args:
        params: of the plan, by position; of sharded ones this rank's parts.
        dtypes: that the kernels read gradients in. hhat is read in float32.

    Attributes:
        converted: how many tensors of the last step were copied.

    >>> rows = ReadableRows([torch.zeros(2, 3)])
    >>> _ = rows.of([(0, torch.ones(3, 2).t(), None)])
    >>> rows.converted
    1
    """

    def __init__(self, params: Sequence[Tensor], dtypes: Container[torch.dtype] = (_FLOAT32,)) -> None:
        self.converted = 0
        self._params, self._dtypes = params, dtypes
        self._devices = [param.get_device() for param in params]
        self._known_strides = [{param.stride()} for param in params]  # in the memory order of the parameter
        self._last: tuple[Sequence[Row], list[tuple[Tensor, Tensor | None]]] | None = None

    def of(self, rows: Sequence[Row]) -> list[tuple[Tensor, Tensor | None]]:
        """Gradient and hhat of each row. The answer for the last rows is kept until `forget`."""
        if self._last is not None and self._last[0] is rows:
            return self._last[1]
        self.converted = 0
        found: list[tuple[Tensor, Tensor | None]] = []
        known, dtypes, devices = self._known_strides, self._dtypes, self._devices
        for k, grad, hhat in rows:
            if (
                type(grad) is not Tensor
                or grad.dtype not in dtypes
                or grad.get_device() != devices[k]
                or grad.layout is not _STRIDED
                or grad.stride() not in known[k]
                or grad.is_neg()
                or not grad.data_ptr()
            ):
                grad = self._in_order(k, grad, dtypes)
            found.append((grad, hhat if hhat is None else self._in_order(k, hhat, (_FLOAT32,))))
        self._last = rows, found
        return found

    def forget(self) -> None:
        """Let go of the gradients of the last step."""
        self._last = None

    def _in_order(self, k: int, tensor: Tensor, dtypes: Container[torch.dtype]) -> Tensor:
        if is_readable(tensor, self._params[k], dtypes):
            self._known_strides[k].add(tensor.stride())
            return tensor
        self.converted += 1
        return torch.empty_like(self._params[k], dtype=_FLOAT32, requires_grad=False).copy_(tensor)
