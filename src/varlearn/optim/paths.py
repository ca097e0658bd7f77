"""Which path carries out which task, chosen as PyTorch's own optimizers choose.

`foreach=False` is the plain loop, `foreach=True` the packed path. Left to itself, or with `fused=True`, a float32
parameter on a CPU takes the native path where there is a C compiler, and everything else the packed one.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from varlearn.optim import loop, native, packed
from varlearn.optim.tasks import Draw, Fold, Step

Group = dict[str, Any]
Task = TypeVar("Task", Draw, Step, Fold)


def draw(tasks: Sequence[tuple[Group, Draw]]) -> None:
    """Perturb parameters, each by the path its group asks for."""
    _carry_out(tasks, loop.draw, packed.draw, native.draw)


def step(tasks: Sequence[tuple[Group, Step]]) -> None:
    """Update parameters, each by the path its group asks for."""
    _carry_out(tasks, loop.step, packed.step, native.step)


def fold(tasks: Sequence[tuple[Group, Fold]]) -> None:
    """Average one more sample with the earlier ones, each parameter by the path its group asks for."""
    _carry_out(tasks, loop.fold, packed.fold, packed.fold)


def keep_and_draw(tasks: Sequence[Draw], copies: Sequence[Tensor], done: ctypes.c_int) -> None:
    """On the native path: copy the means, perturb the parameters, and set `done`, in one call."""
    if tasks:
        params, _, hess, noises, _ = zip(*tasks, strict=True)
        native.keep_and_draw(params, copies, hess, noises, done)


def restore(params: Sequence[Tensor], copies: Sequence[Tensor]) -> None:
    """On the native path: copy the means back."""
    native.restore(params, copies)


def is_native(group: Group, task: Draw | Step | Fold) -> bool:
    """Whether a task takes the native path; compiles it at the first one that could."""
    wanted = group["fused"] or (group["fused"] is None and group["foreach"] is None)
    return bool(wanted) and native.supports(task) and native.load_or_warn()


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


def _carry_out(
    tasks: Sequence[tuple[Group, Task]],
    plain: Callable[[Sequence[Task]], None],
    joined: Callable[[Sequence[Task]], None],
    fused: Callable[[Sequence[Task]], None],
) -> None:
    by_path: dict[Callable[[Sequence[Task]], None], list[Task]] = {plain: [], joined: [], fused: []}
    for group, task in tasks:
        if group["foreach"] is False and not group["fused"]:
            by_path[plain].append(task)
        elif fused is not joined and is_native(group, task):
            by_path[fused].append(task)
        else:
            by_path[joined].append(task)
    for path, its_tasks in by_path.items():
        if its_tasks:
            path(its_tasks)
