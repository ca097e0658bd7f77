"""Which path carries out which task, chosen as PyTorch's own optimizers choose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from varlearn.optim import loop, packed
from varlearn.optim.tasks import Draw, Step

Group = dict[str, Any]


def draw(tasks: Sequence[tuple[Group, Draw]]) -> None:
    """Perturb parameters, each by the path its group asks for."""
    loop.draw([task for group, task in tasks if _is_plain(group)])
    packed.draw([task for group, task in tasks if not _is_plain(group)])


def step(tasks: Sequence[tuple[Group, Step]]) -> None:
    """Update parameters, each by the path its group asks for."""
    loop.step([task for group, task in tasks if _is_plain(group)])
    packed.step([task for group, task in tasks if not _is_plain(group)])


def all_finite(tensors: Sequence[Tensor]) -> bool:
    """Whether no number in `tensors` is NaN or infinite."""
    by_device: dict[torch.device, list[Tensor]] = {}
    for tensor in tensors:
        if tensor.numel():
            by_device.setdefault(tensor.device, []).append(tensor)
    for alike in by_device.values():
        largest = torch._foreach_norm(alike, float("inf"))
        if not bool(torch.stack([value.double() for value in largest]).isfinite().all()):
            return False
    return True


def _is_plain(group: Group) -> bool:
    return group["foreach"] is False and not group["fused"]
