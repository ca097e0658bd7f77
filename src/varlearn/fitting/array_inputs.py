"""Batches of NumPy arrays and data frames, as the tensors that a network takes."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn


def weights_dtype(model: nn.Module) -> torch.dtype:
    """The dtype of the model's first floating-point parameter; float32 where there is none.

    >>> weights_dtype(nn.Linear(1, 1).double())
    torch.float64
    """
    return next((param.dtype for param in model.parameters() if param.is_floating_point()), torch.float32)


def is_array(value: Any) -> bool:
    """Whether a value is a tensor, a NumPy array, or a data frame or its column.

    >>> is_array(torch.ones(2).numpy()), is_array(torch.ones(2)), is_array([1.0, 2.0])
    (True, True, False)
    """
    return isinstance(value, Tensor) or hasattr(value, "__array__")


def as_tensors(value: Any, dtype: torch.dtype) -> Any:
    """Arrays and data frames in nested tuples, lists and mappings as tensors; other things stay as they are.

    Args:
        value: inputs or targets.
        dtype: of floating-point arrays. Tensors keep theirs.

    >>> double = torch.ones(1, dtype=torch.float64)
    >>> as_tensors((double.numpy(), double), torch.float32)
    (tensor([1.]), tensor([1.], dtype=torch.float64))
    """
    if isinstance(value, Tensor):
        return value
    if isinstance(value, Mapping):
        return {name: as_tensors(part, dtype) for name, part in value.items()}
    if isinstance(value, (tuple, list)):
        return tuple(as_tensors(part, dtype) for part in value)
    return _tensor(value, dtype) if is_array(value) else value


def _tensor(value: Any, dtype: torch.dtype) -> Tensor:
    array = value.__array__()
    if array.dtype.kind == "O":  # a data frame with columns of several types
        with contextlib.suppress(TypeError, ValueError):
            array = array.astype("float64")
    if array.dtype.kind not in "biuf":
        raise TypeError(
            f"a {type(value).__name__} with values of type {array.dtype} cannot be a tensor; give numbers, e.g. "
            "one-hot columns for words"
        )
    tensor = torch.tensor(array)  # a copy: the array may be read-only
    return tensor.to(dtype) if tensor.is_floating_point() else tensor
