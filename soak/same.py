"""Whether two loaded values are equal to the last bit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor


def same(first: Any, second: Any) -> bool:
    """Compare nested containers, dataclasses and tensors; NaN equals NaN.

    >>> same({"a": (torch.ones(2), float("nan"))}, {"a": (torch.ones(2), float("nan"))})
    True
    """
    if type(first) is not type(second):
        return False
    if isinstance(first, Tensor):
        return (first.dtype, first.shape) == (second.dtype, second.shape) and torch.equal(_bytes(first), _bytes(second))
    if is_dataclass(first):
        return all(same(getattr(first, one.name), getattr(second, one.name)) for one in fields(first))
    if isinstance(first, Mapping):
        return list(first) == list(second) and all(same(first[key], second[key]) for key in first)
    if isinstance(first, (list, tuple)):
        return len(first) == len(second) and all(map(same, first, second))
    return first == second or (first != first and second != second)


def _bytes(value: Tensor) -> Tensor:
    return value.detach().contiguous().flatten().view(torch.uint8)
