"""Pieces of a size that suits the device: small parameters are joined, large ones are cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from varlearn.core.noise import advanced, pair_counts, signed
from varlearn.optim.layout import Layout, is_small, piece_size
from varlearn.optim.scratch import Memory
from varlearn.optim.tasks import Draw, Fold, Step, is_dense


class OfParameter(Protocol):
    """Tensors of one parameter, of one size, with names; h is always among them."""

    @property
    def hess(self) -> Tensor:
        """The tensor whose size and strides stand for those of all."""
        ...


Task = TypeVar("Task", bound=OfParameter)
Kind = TypeVar("Kind", Draw, Step, Fold)


class Segment(NamedTuple):
    """Elements start to stop of a task's tensors, in memory order."""

    task: Any
    start: int
    stop: int

    def of(self, tensor: Tensor) -> Tensor:
        """These elements of one of the task's tensors, as a flat view."""
        return tensor.as_strided((self.stop - self.start,), (1,), tensor.storage_offset() + self.start)


class Piece(Generic[Task]):
    """What is computed together: a segment of one parameter, or several whole parameters with their scalars in common.

    Attributes:
        tasks: whose tensors these are.
        memory: to compute in, until another piece begins.
    """

    def __init__(self, segments: Sequence[Segment]) -> None:
        self.tasks: list[Task] = [segment.task for segment in segments]
        self._segments = segments
        self._lists: dict[str, list[Tensor]] = {}  # by name, in the order of the tasks
        self._wholes: dict[str, Tensor | None] = {}  # by name: the block that tensors fill, where they lie so
        self._layout: Layout | None = None
        if len(segments) > 1:
            tensors = [segment.task.hess for segment in segments]
            self._in_order = all(tensor.is_contiguous() for tensor in tensors)
            self._layout = _layout(tuple(tensor.shape if self._in_order else (tensor.numel(),) for tensor in tensors))
        self.begin()

    @property
    def first(self) -> Task:
        """One of the tasks, for what they have in common."""
        return self.tasks[0]

    def begin(self) -> None:
        """Take the memory that the piece before had."""
        self.memory = Memory(self.first.hess.device)
        self._parts: dict[int, list[Tensor]] = {}  # by id: a flat tensor in this memory, as parameters

    def tensors(self, name: str) -> list[Tensor]:
        """The tasks' tensors of this name, such that their order of elements is that in memory."""
        if name not in self._lists:
            self._lists[name] = self._in_memory_order([getattr(task, name) for task in self.tasks])
        return self._lists[name]

    def flat(self, name: str) -> Tensor:
        """The tasks' tensors of this name, one after the other: where they are if they lie so, and else in a copy.

        It may be written to, if `put` follows.
        """
        whole = self._whole(name)
        return self._copy(self.tensors(name)) if whole is None else whole

    def join(self, tensors: Sequence[Tensor]) -> Tensor:
        """Others like the tasks' own, one after the other; to be read."""
        in_order = self._in_memory_order(tensors)
        return in_order[0] if self._layout is None else self._copy(in_order)

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
            torch._foreach_copy_(self.tensors(name), self._parts.get(id(values)) or self._layout.parts(values))
        elif place.data_ptr() != values.data_ptr():
            place.copy_(values)

    def counters(self, keys: Sequence[int]) -> Tensor:
        """The counters of the pairs of normals, of the tasks' keys."""
        device = self.memory.device
        if self._layout is None:
            _, start, stop = self._segments[0]
            pairs = (stop + 1) // 2 - start // 2
            counter = self.memory.elements(pairs, torch.int64)
            return torch.add(_counts(pairs, device), signed(advanced(keys[0], start // 2)), out=counter)
        starts = self._layout.starts
        behind = [signed(advanced(key, -start)) for key, start in zip(keys, starts, strict=True)]
        counter = self.memory.elements(self._layout.count // 2, torch.int64)
        torch.index_select(torch.tensor(behind, device=device), 0, self._layout.owners(device), out=counter)
        return counter.add_(_counts(len(counter), device))

    def _whole(self, name: str) -> Tensor | None:
        """The memory that the tensors of this name fill, where nothing else lies between them."""
        if name not in self._wholes:
            tensors = self.tensors(name)
            self._wholes[name] = tensors[0] if self._layout is None else self._layout.whole(tensors)
        return self._wholes[name]

    def _copy(self, tensors: list[Tensor]) -> Tensor:
        assert self._layout is not None
        flat, self._parts[id(flat)] = self.memory.joined(self._layout, tensors[0].dtype)
        torch._foreach_copy_(self._parts[id(flat)], tensors)
        return flat

    def _in_memory_order(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        if self._layout is not None and self._in_order:
            return list(tensors)
        return [segment.of(tensor) for segment, tensor in zip(self._segments, tensors, strict=True)]


def pieces(
    tasks: Sequence[Kind], otherwise: Callable[[Sequence[Kind]], None], kind: Callable[[Kind], tuple[object, ...]]
) -> Iterator[Piece[Kind]]:
    """Pieces of tasks that are of one kind; tasks that are not dense in memory are done one by one.

    Parameters of odd size are joined with each other only: between them there are gaps.
    """
    alike: dict[tuple[object, ...], list[Kind]] = {}
    for task in tasks:
        if _is_one_block(task):
            alike.setdefault((task.hess.numel() % 2, *kind(task)), []).append(task)
        else:
            otherwise([task])
    for group in alike.values():
        for segments in cut(group, piece_size(group[0].hess.device)):
            yield Piece(segments)


def _is_one_block(task: Draw | Step | Fold) -> bool:
    """Whether the task's tensors fill blocks of memory, all in the same order."""
    tensors = [value for value in task if isinstance(value, Tensor)]
    if all(map(Tensor.is_contiguous, tensors)):
        return True
    stride = task.hess.stride()
    return all(tensor.stride() == stride for tensor in tensors) and is_dense(task.hess)


def cut(tasks: Sequence[Task], limit: int) -> Iterator[list[Segment]]:
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
