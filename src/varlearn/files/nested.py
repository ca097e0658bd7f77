"""Nested state as JSON and named tensors, and back exactly: what pickle would do for a checkpoint, without pickle.

Containers and floats that JSON does not know carry a tag: `{"": "tuple", "items": [...]}`. A tensor leaves its name in
the JSON and goes into a dictionary of tensors, in its dtype, shape and order in memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

TAG = ""


def pack(value: Any) -> tuple[Any, dict[str, Tensor]]:
    """Split nested dicts, lists, tuples, tensors, numbers, strings, bools and None into (JSON, tensors).

    Dicts keep their order and may have any of these scalars as keys.

    >>> plain, tensors = pack({"step": 3, "betas": (0.9, 0.99), "hess": torch.ones(2)})
    >>> sorted(tensors)
    ['hess']
    >>> unpack(plain, tensors)
    {'step': 3, 'betas': (0.9, 0.99), 'hess': tensor([1., 1.])}
    """
    tensors: dict[str, Tensor] = {}
    return _pack(value, "", tensors), tensors


def unpack(plain: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The value that `pack` split; tensors are on the device of `tensors`.

    >>> unpack({"": "float", "value": "inf"}, {})
    inf
    """
    if isinstance(plain, list):
        return [unpack(item, tensors) for item in plain]
    if not isinstance(plain, dict):
        return plain
    match plain[TAG]:
        case "tuple":
            return tuple(unpack(item, tensors) for item in plain["items"])
        case "dict":
            return {unpack(key, tensors): unpack(item, tensors) for key, item in plain["items"]}
        case "float":
            return float(plain["value"])
        case "tensor":
            return _strided(tensors[plain["name"]], plain.get("stride"))
        case tag:
            raise ValueError(f"tag {tag!r} is unknown; it must be one that pack() wrote, update varlearn")


def _pack(value: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {TAG: "float", "value": str(value)}
    if isinstance(value, Tensor):
        return _pack_tensor(value, path, tensors)
    if isinstance(value, list):
        return [_pack(item, _join(path, number), tensors) for number, item in enumerate(value)]
    if isinstance(value, tuple):
        items = [_pack(item, _join(path, number), tensors) for number, item in enumerate(value)]
        return {TAG: "tuple", "items": items}
    if isinstance(value, Mapping):
        items = [[_pack(key, path, tensors), _pack(item, _join(path, key), tensors)] for key, item in value.items()]
        return {TAG: "dict", "items": items}
    raise TypeError(
        f"{path or 'the value'} is a {type(value).__name__}; a checkpoint holds tensors, numbers, strings, bools, None "
        "and dicts, lists and tuples of them, convert it"
    )


def _pack_tensor(value: Tensor, path: str, tensors: dict[str, Tensor]) -> dict[str, Any]:
    name = path or "value"
    while name in tensors:  # keys 1 and "1" of one dict have one path
        name += "'"
    tensors[name] = value
    plain: dict[str, Any] = {TAG: "tensor", "name": name}
    if not value.is_contiguous() and _is_dense(value.shape, value.stride()):
        plain["stride"] = list(value.stride())
    return plain


def _strided(value: Tensor, stride: list[int] | None) -> Tensor:
    """In the order in memory that it had: the kernels of an optimizer may round differently in another."""
    if stride is None or not _is_dense(value.shape, stride):
        return value
    return torch.empty_strided(value.shape, stride, dtype=value.dtype, device=value.device).copy_(value)


def _is_dense(shape: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether the elements fill their memory: with gaps, a file could make its reader allocate any amount of it."""
    filled = 1
    for step, size in sorted(zip(stride, shape, strict=True)):
        if size != 1:
            if step != filled:
                return False
            filled *= size
    return True


def _join(path: str, key: object) -> str:
    return f"{path}/{key}" if path else str(key)
