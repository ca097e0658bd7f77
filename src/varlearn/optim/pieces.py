"""Pieces of a size that suits the device: small parameters are joined, large ones are cut."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch._utils import _unflatten_dense_tensors

from varlearn.core.noise import GOLDEN, advanced, signed
from varlearn.optim.scratch import Memory
from varlearn.optim.tasks import Draw, Fold, Step, is_dense

# Elements per piece. On a CPU for each thread: half as many do not pay for the launches, four times as many leave the
# caches. Memory for temporaries is a few pieces, and must not grow with the threads of a large machine.
_CPU_PIECE = 1 << 18
_CPU_THREADS = 4
_JOINED = 8  # parameters so much smaller than a piece are worth the copies that joining them takes
_DEVICE_PIECE = 1 << 26

Task = TypeVar("Task", Draw, Step, Fold)


class Segment(NamedTuple):
    """Elements start to stop of a task's tensors, in memory order."""

    task: Draw | Step | Fold
    start: int
    stop: int

    def of(self, tensor: Tensor) -> Tensor:
        """These elements of one of the task's tensors, as a flat view."""
        return tensor.as_strided((self.stop - self.start,), (1,), tensor.storage_offset() + self.start)


class Piece(Generic[Task]):
    """What is computed together: a segment of one parameter, or several whole parameters with their scalars in common.

    Attributes:
        first: one of the tasks, for what they have in common.
        count: of elements.
        memory: to compute in, until the next piece begins.
    """

    def __init__(self, segments: list[Segment]) -> None:
        self.first: Task = segments[0].task  # pyright: ignore[reportAttributeAccessIssue]
        self.count = sum(segment.stop - segment.start for segment in segments)
        self._segments = segments
        self.memory = Memory(self.first.hess.device)
        self._in_order = all(segment.task.hess.is_contiguous() for segment in segments)
        self._joined: dict[int, tuple[Tensor, ...]] = {}  # by id: a flat tensor, as one part for each parameter

    def flat(self, name: str) -> Tensor:
        """The tasks' tensors of this name, one after the other: a view of a single segment, and else a copy.

        It may be written to, if `put` follows.
        """
        if len(self._segments) == 1:
            return self._only(name)
        tensors = self._tensors(name)
        flat, parts = self._room(tensors)
        torch._foreach_copy_(parts, tensors)
        return flat

    def room(self, name: str, dtype: torch.dtype) -> Tensor:
        """Where new values of the tensors of this name may be computed, in `dtype`, before `put`."""
        if len(self._segments) == 1 and (only := self._only(name)).dtype == dtype:
            return only
        return self.memory.elements(self.count, dtype)

    def put(self, name: str, values: Tensor) -> None:
        """Write values into the tasks' tensors of this name, unless they are there already."""
        if len(self._segments) > 1:
            tensors = self._tensors(name)
            torch._foreach_copy_(tensors, self._parts(values, tensors))
        elif (only := self._only(name)).data_ptr() != values.data_ptr():
            only.copy_(values)

    def counters(self) -> tuple[Tensor, Tensor | None]:
        """The counters of the pairs of normals, and where the elements are among the pairs, if not in order."""
        keys = [segment.task.noise.key for segment in self._segments]
        device = self.memory.device
        if len(keys) > 1:
            sizes = tuple(segment.stop - segment.start for segment in self._segments)
            steps, pairs, position = _layout(sizes, device)
            counter = self.memory.elements(len(steps), torch.int64).copy_(steps)
            torch._foreach_add_(counter.split(pairs), [signed(key) for key in keys])
            return counter, position
        _, start, stop = self._segments[0]
        pairs = (stop + 1) // 2 - start // 2
        steps = _steps(_cpu_piece())[:pairs] if device.type == "cpu" else _counts(pairs, device)
        counter = self.memory.elements(pairs, torch.int64)
        return torch.add(steps, signed(advanced(keys[0], start // 2)), out=counter), None

    def _only(self, name: str) -> Tensor:
        return self._segments[0].of(getattr(self.first, name))

    def _tensors(self, name: str) -> list[Tensor]:
        """Tensors of joined parameters, whole, such that their order of elements is that in memory."""
        tensors = [getattr(segment.task, name) for segment in self._segments]
        if self._in_order:
            return tensors
        return [segment.of(tensor) for segment, tensor in zip(self._segments, tensors, strict=True)]

    def _room(self, tensors: list[Tensor]) -> tuple[Tensor, tuple[Tensor, ...]]:
        flat = self.memory.elements(self.count, tensors[0].dtype)
        return flat, self._parts(flat, tensors)

    def _parts(self, flat: Tensor, like: list[Tensor]) -> tuple[Tensor, ...]:
        if id(flat) not in self._joined:
            self._joined[id(flat)] = _unflatten_dense_tensors(flat, like)
        return self._joined[id(flat)]


def pieces(
    tasks: Sequence[Task], otherwise: Callable[[Sequence[Task]], None], kind: Callable[[Task], tuple[object, ...]]
) -> Iterator[Piece[Task]]:
    """Pieces of tasks that are of one kind; tasks that are not dense in memory are done one by one."""
    alike: dict[tuple[object, ...], list[Task]] = {}
    for task in tasks:
        stride = task.hess.stride()
        if is_dense(task.hess) and all(value.stride() == stride for value in task if isinstance(value, Tensor)):
            alike.setdefault(kind(task), []).append(task)
        else:
            otherwise([task])
    for group in alike.values():
        for segments in _cut(group, _cpu_piece() if group[0].hess.is_cpu else _DEVICE_PIECE):
            yield Piece(segments)


def _cpu_piece() -> int:
    return _CPU_PIECE * min(torch.get_num_threads(), _CPU_THREADS)


def _cut(tasks: Sequence[Task], limit: int) -> Iterator[list[Segment]]:
    """Segments of about `limit` elements: at most half as much again, so that none is small."""
    joined: list[Segment] = []
    room = limit
    for task in tasks:
        numel = task.hess.numel()
        if numel > limit // _JOINED:
            size = -(-numel // max(1, round(numel / limit)))
            size += size % 2  # noise comes in pairs
            yield from ([Segment(task, start, min(start + size, numel))] for start in range(0, numel, size))
        elif numel > 0:
            if numel > room:
                yield joined
                joined, room = [], limit
            joined.append(Segment(task, 0, numel))
            room -= numel
    if joined:
        yield joined


def _counts(pairs: int, device: torch.device) -> Tensor:
    """(j + 1) * GOLDEN of the pairs j."""
    return torch.arange(1, pairs + 1, device=device).mul_(signed(GOLDEN))


_steps = lru_cache(maxsize=1)(partial(_counts, device=torch.device("cpu")))


@lru_cache(maxsize=64)
def _layout(sizes: tuple[int, ...], device: torch.device) -> tuple[Tensor, list[int], Tensor | None]:
    """Of joined parameters: (j + 1) * GOLDEN of each pair, how many pairs each has, and where the elements are."""
    pairs = [(size + 1) // 2 for size in sizes]
    counter = torch.cat([torch.arange(1, count + 1) for count in pairs]).mul_(signed(GOLDEN))
    position = None
    if any(size % 2 for size in sizes):
        firsts = itertools.accumulate(pairs, initial=0)
        position = torch.cat([torch.arange(size) + 2 * first for size, first in zip(sizes, firsts, strict=False)])
        position = position.to(device)
    return counter.to(device), pairs, position
