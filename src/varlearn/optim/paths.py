"""Which path carries out which task, chosen as PyTorch's own optimizers choose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from varlearn.optim import loop
from varlearn.optim.tasks import Draw, Step

Group = dict[str, Any]


def draw(tasks: Sequence[tuple[Group, Draw]]) -> None:
    """Perturb parameters, each by the path its group asks for."""
    loop.draw([task for _, task in tasks])


def step(tasks: Sequence[tuple[Group, Step]]) -> None:
    """Update parameters, each by the path its group asks for."""
    loop.step([task for _, task in tasks])


def all_finite(tensors: Sequence[Tensor]) -> bool:
    """Whether no number in `tensors` is NaN or infinite."""
    if not tensors:
        return True
    largest = torch._foreach_norm(list(tensors), float("inf"))
    return all(bool(value.isfinite()) for value in largest)
