"""Pieces of a size that suits the device: small parameters are joined, large ones are cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from varlearn.core.noise import advanced, pair_counts, signed
from varlearn.optim.layout import Layout, is_small, piece_size
from varlearn.optim.scratch import Memory
from varlearn.optim.tasks import Draw, Fold, Step, is_dense

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
        memory: to compute in, until the next piece begins.
    """

    def __init__(self, segments: list[Segment]) -> None:
        self.first: Task = segments[0].task  # pyright: ignore[reportAttributeAccessIssue]
        self.memory = Memory(self.first.hess.device)
        self._segments = segments
        self._layout: Layout | None = None
        self._parts: dict[int, list[Tensor]] = {}  # by id: a flat tensor, as parameters
        self._wholes: dict[str, Tensor | None] = {}  # by name: the block that tensors fill, where they lie so
        if len(segments) > 1:
            tensors = [segment.task.hess for segment in segments]
            self._in_order = all(tensor.is_contiguous() for tensor in tensors)
            shapes = tuple(tensor.shape if self._in_order else (tensor.numel(),) for tensor in tensors)
            self._layout = _layout(shapes)

    def flat(self, name: str) -> Tensor:
        """The tasks' tensors of this name, one after the other: where they are if they lie so, and else in a copy.

        It may be written to, if `put` follows.
        """
        whole = self._whole(name)
        if whole is not None:
            return whole
        tensors = self._tensors(name)
        flat = self.room(name, tensors[0].dtype)
        torch._foreach_copy_(self._parts[id(flat)], tensors)
        return flat

    def room(self, name: str, dtype: torch.dtype) -> Tensor:
        """Where new values of the tensors of this name may be computed, in `dtype`, before `put`."""
        place = self._whole(name)
        if place is not None and place.dtype == dtype:
            return place
        if self._layout is None:
            return self.memory.elements(self._segments[0].stop - self._segments[0].start, dtype)
        flat, self._parts[id(flat)] = self.memory.joined(self._layout, dtype)
        return flat

    def put(self, name: str, values: Tensor) -> None:
        """Write values into the tasks' tensors of this name, unless they are there already."""
        place = self._whole(name)
        if place is None:
            assert self._layout is not None
            torch._foreach_copy_(self._tensors(name), self._parts.get(id(values)) or self._layout.parts(values))
        elif place.data_ptr() != values.data_ptr():
            place.copy_(values)

    def counters(self) -> Tensor:
        """The counters of the pairs of normals."""
        keys = [segment.task.noise.key for segment in self._segments]
        if self._layout is None:
            _, start, stop = self._segments[0]
            pairs = (stop + 1) // 2 - start // 2
            counter = self.memory.elements(pairs, torch.int64)
            return torch.add(_counts(pairs, self.memory.device), signed(advanced(keys[0], start // 2)), out=counter)
        device, starts = self.memory.device, self._layout.starts
        behind = [signed(advanced(key, -start)) for key, start in zip(keys, starts, strict=True)]
        counter = self.memory.elements(self._layout.count // 2, torch.int64)
        torch.index_select(torch.tensor(behind, device=device), 0, self._layout.owners(device), out=counter)
        return counter.add_(_counts(len(counter), device))

    def _whole(self, name: str) -> Tensor | None:
        """The memory that the tensors of this name fill, where nothing else lies between them."""
        if name not in self._wholes:
            layout = self._layout
            self._wholes[name] = self._only(name) if layout is None else layout.whole(self._tensors(name))
        return self._wholes[name]

    def _only(self, name: str) -> Tensor:
        return self._segments[0].of(getattr(self.first, name))

    def _tensors(self, name: str) -> list[Tensor]:
        """Tensors of joined parameters, whole, such that their order of elements is that in memory."""
        tensors = [getattr(segment.task, name) for segment in self._segments]
        if self._in_order:
            return tensors
        return [segment.of(tensor) for segment, tensor in zip(self._segments, tensors, strict=True)]


def pieces(
    tasks: Sequence[Task], otherwise: Callable[[Sequence[Task]], None], kind: Callable[[Task], tuple[object, ...]]
) -> Iterator[Piece[Task]]:
    """Pieces of tasks that are of one kind; tasks that are not dense in memory are done one by one.

    Parameters of odd size are joined with each other only: between them there are gaps.
    """
    alike: dict[tuple[object, ...], list[Task]] = {}
    for task in tasks:
        if _is_one_block(task):
            alike.setdefault((task.hess.numel() % 2, *kind(task)), []).append(task)
        else:
            otherwise([task])
    for group in alike.values():
        for segments in _cut(group, piece_size(group[0].hess.device)):
            yield Piece(segments)


def _is_one_block(task: Draw | Step | Fold) -> bool:
    """Whether the task's tensors fill blocks of memory, all in the same order."""
    tensors = [value for value in task if isinstance(value, Tensor)]
    if all(map(Tensor.is_contiguous, tensors)):
        return True
    stride = task.hess.stride()
    return all(tensor.stride() == stride for tensor in tensors) and is_dense(task.hess)


def _cut(tasks: Sequence[Task], limit: int) -> Iterator[list[Segment]]:
    """Segments of about `limit` elements: at most half as much again, so that none is small."""
    joined: list[Segment] = []
    room = limit
    for task in tasks:
        numel = task.hess.numel()
        if not is_small(task.hess, limit):
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
    """`pair_counts`, which on a CPU are kept for pieces of every size."""
    if device.type != "cpu":
        return pair_counts(pairs, device)
    largest = 3 * piece_size(device) // 4 + 1  # pairs: a piece may be half as large again
    return _counts_on_cpu(max(pairs, largest))[:pairs]


@lru_cache(maxsize=1)
@torch.inference_mode(False)
def _counts_on_cpu(pairs: int) -> Tensor:
    return pair_counts(pairs, torch.device("cpu"))


_layout = lru_cache(maxsize=64)(Layout)
