"""Checks and casts of a posterior's arguments: dictionaries of named tensors, and the temperature."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from varlearn.types import Params

LARGEST = torch.finfo(torch.float32).max  # with a larger number torch raises an error that names no tensor


def check_names(what: str, values: Mapping[str, Any], mean: Mapping[str, Tensor], *, partial: bool = False) -> None:
    """Refuse values whose names (and shapes, for tensors) are not those of the mean.

    Args:
        what: name of the values in messages.
        values: tensors or numbers by name.
        mean: the names and shapes to have.
        partial: whether some names may be absent.

    >>> check_names("hess", {"w": torch.zeros(2)}, {"w": torch.zeros(3)})
    Traceback (most recent call last):
    ...
    ValueError: hess['w'] has shape (2,), but mean['w'] has (3,); give both the parameter's shape
    """
    unexpected = [name for name in values if name not in mean]
    missing = [] if partial else [name for name in mean if name not in values]
    if unexpected or missing:
        raise ValueError(
            f"{what} and mean must have the same names: {what} lacks {missing} and has {unexpected} besides; "
            "give one entry per tensor of the mean"
        )
    for name, value in values.items():
        if isinstance(value, Tensor) and value.shape != mean[name].shape:
            raise ValueError(
                f"{what}[{name!r}] has shape {tuple(value.shape)}, but mean[{name!r}] has "
                f"{tuple(mean[name].shape)}; give both the parameter's shape"
            )


def check_means(mean: Mapping[str, Tensor]) -> None:
    """Refuse an empty posterior, and means that are not float tensors or not finite.

    >>> check_means({"w": torch.tensor([1])})
    Traceback (most recent call last):
    ...
    ValueError: mean['w'] is torch.int64; random weights must be real floats, put other tensors into `fixed`
    """
    if not mean:
        raise ValueError("mean={} names no tensor; a posterior needs at least one random weight")
    for name, value in mean.items():
        if not value.is_floating_point():
            raise ValueError(
                f"mean[{name!r}] is {value.dtype}; random weights must be real floats, put other tensors into `fixed`"
            )
        if not value.isfinite().all():
            raise ValueError(
                f"mean[{name!r}] has NaN or infinite entries; they must be finite, train from a good state"
            )


def checked_temperature(temperature: float) -> float:
    """The temperature of a posterior, refused unless it is >= 0 and finite in float32.

    >>> checked_temperature(-1.0)
    Traceback (most recent call last):
    ...
    ValueError: temperature=-1.0 must be >= 0 and finite in float32; 1 leaves the posterior as it is, 0 is its mean
    """
    if not 0 <= temperature <= LARGEST:
        raise ValueError(
            f"temperature={temperature} must be >= 0 and finite in float32; 1 leaves the posterior as it is, 0 is "
            "its mean"
        )
    return float(temperature)


def size_of(mean: Mapping[str, Tensor]) -> str:
    """How many weights and tensors, for people.

    >>> size_of({"w": torch.zeros(1000, 2), "b": torch.zeros(1)})
    '2,001 weights in 2 tensors'
    """
    return f"{sum(value.numel() for value in mean.values()):,} weights in {len(mean)} tensors"


def cast(values: Mapping[str, Tensor], device: torch.device | str | None, dtype: torch.dtype | None) -> Params:
    """Move tensors, and cast those that are floats.

    >>> cast({"w": torch.ones(1), "n": torch.tensor(3)}, None, torch.float64)["n"].dtype
    torch.int64
    """
    if dtype is not None and not dtype.is_floating_point:
        raise ValueError(f"dtype={dtype} must be a float type; use torch.float32 or torch.float64")
    return {
        name: value.to(device=device, dtype=dtype if value.is_floating_point() else None)
        for name, value in values.items()
    }
