"""Collect what was computed batch by batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


class Batches(dict[int, Tensor]):
    """One tensor per batch, by the number of the batch.

    >>> parts = Batches()
    >>> parts[0], parts[1] = torch.tensor([1.0]), torch.tensor([2.0])
    >>> parts.joined()
    tensor([1., 2.])
    """

    def joined(self) -> Tensor:
        """All batches in their order, along the first dimension, on the CPU."""
        return torch.cat([self[number].cpu() for number in sorted(self)])


class SampleBatches:
    """Every sample of every batch, on the CPU.

    >>> parts = SampleBatches()
    >>> parts.add(0, torch.ones(2, 3))
    >>> parts.add(0, torch.ones(1, 3))
    >>> parts.add(1, torch.ones(3, 4))
    >>> parts.joined().shape
    torch.Size([3, 7])
    """

    def __init__(self) -> None:
        self._parts: dict[int, list[Tensor]] = {}

    def add(self, batch: int, values: Tensor) -> None:
        """Append samples of a batch, shape (S, B, ...)."""
        self._parts.setdefault(batch, []).append(values.cpu())

    def joined(self) -> Tensor:
        """All samples of all batches, shape (S, N, ...)."""
        return torch.cat([torch.cat(self._parts[batch]) for batch in sorted(self._parts)], dim=1)


def joined_targets(targets: Sequence[Tensor | None]) -> Tensor | None:
    """The targets of all batches, or None where some have none.

    >>> joined_targets([torch.tensor([1]), torch.tensor([2, 3])])
    tensor([1, 2, 3])
    """
    known = [value for value in targets if value is not None]
    return torch.cat(known) if known and len(known) == len(targets) else None


def as_floats(outputs: Any) -> Tensor:
    """What a model returned, as a tensor in float32 or better.

    >>> as_floats(torch.ones(1, dtype=torch.bfloat16))
    tensor([1.])
    """
    if not isinstance(outputs, Tensor):
        raise TypeError(
            f"the model returned a {type(outputs).__name__}; it must return a tensor or an object with `logits`, "
            "wrap it in a module that does"
        )
    return outputs.to(torch.promote_types(outputs.dtype, torch.float32))


def check_numbers(values: Tensor, batch: int) -> None:
    """Refuse NaN, which one bad sample would spread over the whole average.

    >>> check_numbers(torch.tensor([float("nan")]), batch=3)
    Traceback (most recent call last):
    ...
    ValueError: batch 3 gives NaN under a posterior sample, and predictions must be numbers; check the model at its \
mean, and if that is well the posterior is too wide: use posterior.tempered(T) with T < 1
    """
    if values.isnan().any():
        raise ValueError(
            f"batch {batch} gives NaN under a posterior sample, and predictions must be numbers; check the model at "
            "its mean, and if that is well the posterior is too wide: use posterior.tempered(T) with T < 1"
        )
