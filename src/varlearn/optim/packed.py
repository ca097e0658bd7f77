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
from varlearn.core.noise import GOLDEN, normal_pairs, signed
from varlearn.optim import loop
from varlearn.optim.tasks import Draw, Fold, Step, is_dense

# Elements per piece: on a CPU, where 2^16 pays for its launches and 2^20 leaves the caches, the best in between.
_CPU_PIECE = 1 << 18
_DEVICE_PIECE = 1 << 26

Task = TypeVar("Task", Draw, Step, Fold)


class Compute(NamedTuple):
    """The arithmetic of one piece: as it stands below, or compiled."""

    sample: Callable[..., Tensor] = lambda *args: sample_values(*args)
    step: Callable[..., update.Gaussian] = lambda *args: step_values(*args)


EAGER = Compute()


class Segment(NamedTuple):
    """Elements start to stop of a task's tensors, in memory order."""

    task: Draw | Step | Fold
    start: int
    stop: int

    def of(self, tensor: Tensor) -> Tensor:
        """These elements of one of the task's tensors, as a flat view."""
        return tensor.as_strided((self.stop - self.start,), (1,), tensor.storage_offset() + self.start)


def draw(tasks: Sequence[Draw], compute: Compute = EAGER) -> None:
    """Perturb each parameter (line 2)."""
    alike = _sort_out(tasks, loop.draw, lambda t: (t.noise.scale, t.sign, t.mean.dtype, t.param.dtype, t.param.device))
    for piece in alike:
        first = piece[0].task
        assert isinstance(first, Draw)
        mean, hess = _gather(piece, lambda t: t.mean), _gather(piece, lambda t: t.hess)
        theta = compute.sample(mean, hess, *_counters(piece, hess), first.noise.scale, first.sign, first.param.dtype)
        _scatter(piece, lambda t: t.param, theta)


def step(tasks: Sequence[Step], compute: Compute = EAGER) -> None:
    """Update each parameter (lines 3 to 7)."""
    for piece in _sort_out([_same_strides(task) for task in tasks], loop.step, _step_kind):
        first = piece[0].task
        assert isinstance(first, Step)
        q = update.Gaussian(
            *(_gather(piece, lambda t, name=name: getattr(t, name)) for name in update.Gaussian._fields)
        )
        estimate = None if first.estimate is None else _gather(piece, lambda t: t.estimate)
        prior_mean = first.prior_mean
        if isinstance(prior_mean, Tensor):
            prior_mean = _gather(piece, lambda t: t.prior_mean)
        scalars = (first.approximation, first.noise.scale, first.grad_factor, first.clip_factor, first.hyper)
        grad = _gather(piece, lambda t: t.grad)
        after = compute.step(q, grad, estimate, *_counters(piece, q.hess), prior_mean, *scalars, first.param.dtype)
        for name, value in zip(q._fields, after, strict=True):
            _scatter(piece, lambda t, name=name: getattr(t, name), value)
        if first.param is not first.mean:
            _scatter(piece, lambda t: t.param, after.mean)


def fold(tasks: Sequence[Fold]) -> None:
    """Average each parameter's gradient and hhat with those of the earlier samples."""
    for piece in _sort_out(tasks, loop.fold, _fold_kind):
        first = piece[0].task
        assert isinstance(first, Fold)
        hess, grad = _gather(piece, lambda t: t.hess), _gather(piece, lambda t: t.grad)
        hhat = _estimate(first.approximation, grad.to(hess.dtype), hess, *_counters(piece, hess), first.noise.scale)
        means = [("estimate_mean", hhat)] + ([] if first.grad_mean is None else [("grad_mean", grad)])
        for name, value in means:
            mean = _gather(piece, lambda t, name=name: getattr(t, name)).clone()
            loop.fold_in_mean(mean, value, first.count)
            _scatter(piece, lambda t, name=name: getattr(t, name), mean)


def sample_values(
    mean: Tensor,
    hess: Tensor,
    counter: Tensor,
    position: Tensor | None,
    scale: tuple[float, float],
    sign: float,
    dtype: torch.dtype,
) -> Tensor:
    """theta of a piece, in the mean's dtype, within the range of the parameter's `dtype`. Scale is (lambda, delta)."""
    noise = _normals(counter, position, hess) * sign
    return _bounded(update.sample(mean, update.std(hess, *scale), noise), dtype)


def step_values(
    q: update.Gaussian,
    grad: Tensor,
    estimate: Tensor | None,
    counter: Tensor,
    position: Tensor | None,
    prior_mean: Tensor | float,
    approximation: str,
    scale: tuple[float, float],
    grad_factor: float,
    clip_factor: float,
    hyper: update.Hyper,
    dtype: torch.dtype,
) -> update.Gaussian:
    """The Gaussian of a piece after one step."""
    grad = grad.to(q.hess.dtype) * grad_factor
    if estimate is not None:
        hhat = update.saturate_(estimate.to(q.hess.dtype, copy=True))
    else:
        hhat = _estimate(approximation, grad, q.hess, counter, position, scale)
    after = update.step(q, grad * clip_factor, hhat, hyper, prior_mean)
    return after._replace(mean=_bounded(after.mean, dtype))


def _estimate(
    approximation: str, grad: Tensor, hess: Tensor, counter: Tensor, position: Tensor | None, scale: tuple[float, float]
) -> Tensor:
    if approximation == "squared_gradient":
        return update.hess_squared_gradient(grad)
    return update.hess_reparam(grad, _normals(counter, position, hess), update.std(hess, *scale))


def _bounded(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Bound values, in place, to what a parameter of a smaller dtype can hold."""
    if values.dtype == dtype:
        return values
    bound = torch.finfo(dtype).max
    return values.clamp_(-bound, bound)


def _step_kind(task: Step) -> tuple[object, ...]:
    prior = "tensor" if isinstance(task.prior_mean, Tensor) else task.prior_mean
    dtypes = (task.param.dtype, task.hess.dtype, task.grad.dtype)
    scalars = (task.noise.scale, task.grad_factor, task.clip_factor, task.hyper)
    return (task.param.device, dtypes, scalars, task.approximation, task.estimate is None, prior)


def _fold_kind(task: Fold) -> tuple[object, ...]:
    dtypes = (task.hess.dtype, task.grad.dtype, None if task.grad_mean is None else task.grad_mean.dtype)
    return (task.hess.device, dtypes, task.noise.scale, task.approximation, task.count)


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


def _counters(piece: list[Segment], like: Tensor) -> tuple[Tensor, Tensor | None]:
    """The counters of a piece's pairs of normals, and where its elements are among the pairs, if not in order."""
    if len(piece) == 1:
        segment = piece[0]
        pairs = torch.arange(segment.start // 2 + 1, (segment.stop + 1) // 2 + 1, device=like.device)
        return pairs.mul_(signed(GOLDEN)).add_(signed(segment.task.noise.key)), None
    sizes = tuple(segment.stop - segment.start for segment in piece)
    counter, owner, position = _layout(sizes, like.device)
    keys = torch.tensor([signed(segment.task.noise.key) for segment in piece], device=like.device)
    return counter + keys[owner], position


def _normals(counter: Tensor, position: Tensor | None, like: Tensor) -> Tensor:
    normals = torch.stack(normal_pairs(counter, like.dtype), -1).view(-1)
    return normals[: like.numel()] if position is None else normals[position]


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
