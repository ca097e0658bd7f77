"""In which order the elements of a tensor lie in memory."""

from __future__ import annotations

import torch
from torch import Tensor


def is_dense(tensor: Tensor) -> bool:
    """Whether the elements fill a block of memory, in any order of the dimensions.

    >>> is_dense(torch.zeros(3, 4).t()), is_dense(torch.zeros(3, 4)[:, ::2])
    (True, False)
    """
    if tensor.is_contiguous():
        return True
    expected = 1
    dims = [(stride, size) for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1]
    for stride, size in sorted(dims):
        if stride != expected:
            return False
        expected *= size
    return True


def same_order(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors have one shape and one memory order. The stride of a dimension of size 1 means nothing.

    >>> weight, matrix = torch.zeros(1, 8, 1, 1), torch.zeros(3, 2)
    >>> same_order(weight, weight.to(memory_format=torch.channels_last)), same_order(matrix.view(2, 3), matrix.t())
    (True, False)
    """
    if a.shape != b.shape:
        return False
    strides = zip(a.shape, a.stride(), b.stride(), strict=True)
    return a.numel() == 0 or all(x == y for size, x, y in strides if size != 1)


def in_order_of(like: Tensor, values: Tensor) -> Tensor:
    """`values` in the memory order of `like`: the tensor itself where it has that order, else a copy.

    >>> in_order_of(torch.zeros(3, 2).t(), torch.zeros(2, 3)).stride()
    (1, 2)
    """
    if same_order(like, values):
        return values
    return torch.empty_like(like, dtype=values.dtype, requires_grad=False).copy_(values)


def flat(tensor: Tensor) -> Tensor:
    """The elements of a dense tensor in memory order, as a view.

    >>> flat(torch.tensor([[1, 2], [3, 4]]).t())
    tensor([1, 2, 3, 4])
    """
    return tensor.as_strided((tensor.numel(),), (1,))
