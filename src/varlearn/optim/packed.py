"""The foreach path: the same rule, on pieces of a size that suits the device, without a compiler.

Small parameters are joined, large ones are cut, so that each tensor operation is worth its launch and, on a CPU, its
temporaries stay in the cache. Everything in the rule is elementwise; only the noise knows where a piece begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from varlearn.core import update
from varlearn.core.noise import GOLDEN, normal_, normal_pairs, signed
from varlearn.optim import loop
from varlearn.optim.tasks import Draw, Fold, Step, is_dense

# Elements per piece. A CPU keeps a dozen temporaries of this size in its second-level caches.
_CPU_PIECE = 1 << 17
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


def draw(tasks: Sequence[Draw]) -> None:
    """Perturb each parameter (line 2)."""
    alike = _sort_out(tasks, loop.draw, lambda t: (t.noise[1:], t.sign, t.mean.dtype, t.param.dtype, t.param.device))
    for piece in alike:
        first = piece[0].task
        assert isinstance(first, Draw)
        hess = _gather(piece, lambda t: t.hess)
        std = update.std(hess, first.noise.ess, first.noise.weight_decay)
        noise = _noise(piece, hess).mul_(first.sign)
        theta = update.sample(_gather(piece, lambda t: t.mean), std, noise)
        _scatter(piece, lambda t: t.param, _bounded(theta, first.param.dtype))


def step(tasks: Sequence[Step]) -> None:
    """Update each parameter (lines 3 to 7)."""
    for piece in _sort_out([_same_strides(task) for task in tasks], loop.step, _step_kind):
        _step_piece(piece)


def fold(tasks: Sequence[Fold]) -> None:
    """Average each parameter's gradient and hhat with those of the earlier samples."""
    for piece in _sort_out(tasks, loop.fold, _fold_kind):
        first = piece[0].task
        assert isinstance(first, Fold)
        hess = _gather(piece, lambda t: t.hess)
        grad = _gather(piece, lambda t: t.grad)
        hhat = _estimate(piece, grad.to(hess.dtype), hess)
        means = [("estimate_mean", hhat)] + ([] if first.grad_mean is None else [("grad_mean", grad)])
        for name, value in means:
            mean = _gather(piece, lambda t, name=name: getattr(t, name)).clone()
            loop.fold_in_mean(mean, value, first.count)
            _scatter(piece, lambda t, name=name: getattr(t, name), mean)


def _estimate(piece: list[Segment], grad: Tensor, hess: Tensor) -> Tensor:
    first = piece[0].task
    if first.approximation == "squared_gradient":
        return update.hess_squared_gradient(grad)
    std = update.std(hess, first.noise.ess, first.noise.weight_decay)
    return update.hess_reparam(grad, _noise(piece, hess), std)


def _step_piece(piece: list[Segment]) -> None:
    first = piece[0].task
    assert isinstance(first, Step)
    q = update.Gaussian(*(_gather(piece, lambda t, name=name: getattr(t, name)) for name in update.Gaussian._fields))
    grad = _gather(piece, lambda t: t.grad).to(q.hess.dtype) * first.grad_factor
    if first.estimate is not None:
        hhat = update.saturate_(_gather(piece, lambda t: t.estimate).to(q.hess.dtype, copy=True))
    else:
        hhat = _estimate(piece, grad, q.hess)
    prior_mean = first.prior_mean
    if isinstance(prior_mean, Tensor):
        prior_mean = _gather(piece, lambda t: t.prior_mean)
    after = update.step(q, grad.mul_(first.clip_factor), hhat, first.hyper, prior_mean)
    for name, value in zip(q._fields, after, strict=True):
        _scatter(piece, lambda t, name=name: getattr(t, name), value)
    if first.param is not first.mean:
        mean = _bounded(after.mean, first.param.dtype)
        _scatter(piece, lambda t: t.mean, mean)
        _scatter(piece, lambda t: t.param, mean)


def _bounded(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Bound values, in place, to what a parameter of a smaller dtype can hold."""
    if values.dtype == dtype:
        return values
    bound = torch.finfo(dtype).max
    return values.clamp_(-bound, bound)


def _step_kind(task: Step) -> tuple[object, ...]:
    prior = "tensor" if isinstance(task.prior_mean, Tensor) else task.prior_mean
    dtypes = (task.param.dtype, task.hess.dtype, task.grad.dtype)
    scalars = (task.noise[1:], task.grad_factor, task.clip_factor, task.hyper)
    return (task.param.device, dtypes, scalars, task.approximation, task.estimate is None, prior)


def _fold_kind(task: Fold) -> tuple[object, ...]:
    dtypes = (task.hess.dtype, task.grad.dtype, None if task.grad_mean is None else task.grad_mean.dtype)
    return (task.hess.device, dtypes, task.noise[1:], task.approximation, task.count)


def _same_strides(task: Step) -> Step:
    """Copy what does not lie in memory as the parameter does."""
    moved = {
        name: torch.empty_like(task.param, dtype=tensor.dtype).copy_(tensor)
        for name in ("grad", "estimate")
        if isinstance(tensor := getattr(task, name), Tensor) and tensor.stride() != task.param.stride()
    }
    return task._replace(**moved) if moved else task


def _sort_out(
    tasks: Sequence[Task], otherwise: Callable[[Sequence[Task]], None], kind: Callable[[Task], tuple[object, ...]]
) -> Iterator[list[Segment]]:
    """Pieces of tasks that have their scalars in common; tasks that are not dense in memory are done one by one."""
    alike: dict[tuple[object, ...], list[Task]] = {}
    for task in tasks:
        tensors = [value for value in task if isinstance(value, Tensor)]
        if is_dense(task.hess) and all(tensor.stride() == task.hess.stride() for tensor in tensors):
            alike.setdefault(kind(task), []).append(task)
        else:
            otherwise([task])
    for group in alike.values():
        limit = _CPU_PIECE if group[0].hess.device.type == "cpu" else _DEVICE_PIECE
        yield from _pieces(group, limit)


def _pieces(tasks: Sequence[Task], limit: int) -> Iterator[list[Segment]]:
    piece: list[Segment] = []
    room = limit
    for task in tasks:
        numel = task.hess.numel()
        if numel > room and piece:
            yield piece
            piece, room = [], limit
        for start in range(0, numel, limit):
            segment = Segment(task, start, min(start + limit, numel))
            if numel > limit:
                yield [segment]
            else:
                piece.append(segment)
                room -= numel
    if piece:
        yield piece


def _gather(piece: list[Segment], tensor: Callable[..., Tensor]) -> Tensor:
    """One flat tensor of a piece: a view where it is a single segment. Read it, do not write to it."""
    parts = [segment.of(tensor(segment.task)) for segment in piece]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _scatter(piece: list[Segment], tensor: Callable[..., Tensor], values: Tensor) -> None:
    parts = [segment.of(tensor(segment.task)) for segment in piece]
    torch._foreach_copy_(parts, list(values.split([part.numel() for part in parts])))


def _noise(piece: list[Segment], like: Tensor) -> Tensor:
    if len(piece) == 1:
        segment = piece[0]
        return normal_(torch.empty_like(like), segment.task.noise.key, segment.start)
    sizes = tuple(segment.stop - segment.start for segment in piece)
    counter, owner, position = _layout(sizes, like.device)
    keys = torch.tensor([signed(segment.task.noise.key) for segment in piece], device=like.device)
    normals = torch.stack(normal_pairs(counter + keys[owner], like.dtype), -1).view(-1)
    return normals if position is None else normals[position]


@lru_cache(maxsize=64)
def _layout(sizes: tuple[int, ...], device: torch.device) -> tuple[Tensor, Tensor, Tensor | None]:
    """Of joined parameters: (j + 1) * GOLDEN of each pair, whose it is, and where the elements are among the pairs."""
    pairs = torch.tensor([(size + 1) // 2 for size in sizes])
    owner = torch.repeat_interleave(torch.arange(len(sizes)), pairs)
    first = torch.cumsum(pairs, 0) - pairs
    counter = (torch.arange(len(owner)) - first[owner] + 1).mul_(signed(GOLDEN))
    position = None
    if any(size % 2 for size in sizes):
        position = torch.cat([torch.arange(size) + 2 * int(start) for size, start in zip(sizes, first, strict=True)])
        position = position.to(device)
    return counter.to(device), owner.to(device), position
