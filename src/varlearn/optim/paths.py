"""Which path carries out which task, chosen as PyTorch's own optimizers choose.

`foreach=False` is the plain loop, `foreach=True` the packed path. Left to itself, or with `fused=True`, a float32
parameter on a CPU takes the native path where there is a C compiler. With `fused=True` a parameter on an accelerator
takes the path that inductor compiles. Everything else takes the packed one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from varlearn.optim import compiled, loop, native, packed
from varlearn.optim.tasks import Draw, Fold, Step

Group = dict[str, Any]
Task = TypeVar("Task", Draw, Step, Fold)
Path = Literal["loop", "native", "compiled", "packed"]


def draw(tasks: Sequence[tuple[Group, Draw]]) -> None:
    """Perturb parameters, each by the path its group asks for."""
    _carry_out(tasks, loop.draw, packed.draw, native.draw, compiled.draw)


def step(tasks: Sequence[tuple[Group, Step]]) -> None:
    """Update parameters, each by the path its group asks for."""
    _carry_out(tasks, loop.step, packed.step, native.step, compiled.step)


def fold(tasks: Sequence[tuple[Group, Fold]]) -> None:
    """Average one more sample with the earlier ones, each parameter by the path its group asks for."""
    _carry_out(tasks, loop.fold, packed.fold, native.fold, packed.fold)


def all_finite(groups: Sequence[Group], tensors: Sequence[Tensor]) -> bool:
    """Whether no number in `tensors` is NaN or infinite; by the native path where one of `groups` takes it."""
    by_c: list[Tensor] = []
    by_device: dict[torch.device, list[Tensor]] = {}
    fused = any(_wants_native(group) for group in groups) and native.load_or_warn()
    for tensor in tensors:
        if fused and tensor.dtype == torch.float32 and tensor.is_cpu and tensor.is_contiguous():
            by_c.append(tensor)
        elif tensor.numel():
            by_device.setdefault(tensor.device, []).append(tensor)
    if by_c and not native.all_finite(by_c):
        return False
    for alike in by_device.values():
        # A sum is faster than a look at each number. It shows every NaN and infinity, and may overflow by itself.
        sums = torch.stack([tensor.sum(dtype=torch.promote_types(tensor.dtype, torch.float32)) for tensor in alike])
        if not bool(sums.isfinite().all()) and not all(bool(tensor.isfinite().all()) for tensor in alike):
            return False
    return True


def _wants_native(group: Group) -> bool:
    return bool(group["fused"] or (group["fused"] is None and group["foreach"] is None))


def choose(group: Group, task: Draw | Step | Fold) -> Path:
    """Which path carries out a task; compiles the native one at the first that could take it."""
    if task.noise.grid is not None or (group["foreach"] is False and not group["fused"]):
        return "loop"
    if _wants_native(group) and native.supports(task) and native.load_or_warn():
        return "native"
    return "compiled" if group["fused"] and not task.hess.is_cpu else "packed"


def _carry_out(
    tasks: Sequence[tuple[Group, Task]],
    plain: Callable[[Sequence[Task]], None],
    joined: Callable[[Sequence[Task]], None],
    by_c: Callable[[Sequence[Task]], None],
    by_inductor: Callable[[Sequence[Task]], None],
) -> None:
    paths = {"loop": plain, "packed": joined, "native": by_c, "compiled": by_inductor}
    by_path: dict[str, list[Task]] = {}
    for group, task in tasks:
        by_path.setdefault(choose(group, task), []).append(task)
    for path, its_tasks in by_path.items():
        paths[path](its_tasks)
