"""The foreach path: the same rule, on pieces of a size that suits the device, without a compiler.

Small parameters are joined, large ones are cut, so that each tensor operation is worth its launch and, on a CPU, its
temporaries stay in the cache. Everything in the rule is elementwise; only the noise knows where a piece begins.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

from varlearn.core import update
from varlearn.core.noise import GOLDEN, advanced, normal_pairs, signed
from varlearn.optim import loop
from varlearn.optim.tasks import Draw, Fold, Step, is_dense

# Elements per piece. On a CPU for each thread: half as many do not pay for the launches, four times as many leave the
# caches. Memory for temporaries is a few pieces, and must not grow with the threads of a large machine.
_CPU_PIECE = 1 << 17
_CPU_THREADS = 8
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
    for piece in _sort_out(tasks, loop.draw, _draw_kind):
        first = piece[0].task
        assert isinstance(first, Draw)
        mean, hess = _gather(piece, lambda t: t.mean), _gather(piece, lambda t: t.hess)
        scalars = (first.noise.scale, first.sign, first.param.dtype)
        if first.normals is None:
            theta = compute.sample(mean, hess, *_counters(piece, hess), *scalars)
        else:
            normals = _normals(*_counters(piece, hess), hess)
            _scatter(piece, lambda t: t.normals, normals)
            theta = perturbed(mean, hess, normals, *scalars)
        _scatter(piece, lambda t: t.param, theta)


def step(tasks: Sequence[Step], compute: Compute = EAGER) -> None:
    """Update each parameter (lines 3 to 7)."""
    for piece in _sort_out([_same_strides(task) for task in tasks], loop.step, _step_kind):
        first = piece[0].task
        assert isinstance(first, Step)
        q = update.Gaussian(
            *(_gather(piece, lambda t, name=name: getattr(t, name)) for name in update.Gaussian._fields)
        )
        grad = _gather(piece, lambda t: t.grad)
        estimate = None if first.estimate is None else _gather(piece, lambda t: t.estimate)
        normals = None if first.normals is None else _gather(piece, lambda t: t.normals)
        prior_mean = first.prior_mean
        if isinstance(prior_mean, Tensor):
            prior_mean = _gather(piece, lambda t: t.prior_mean)
        needs_noise = first.approximation == "reparam" and estimate is None and normals is None
        counters = _counters(piece, q.hess) if needs_noise else (None, None)
        scalars = (first.approximation, first.noise.scale, first.grad_factor, first.clip_factor, first.hyper)
        after = compute.step(q, grad, estimate, normals, *counters, prior_mean, *scalars, first.param.dtype)
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
        normals = _normals(*_counters(piece, hess), hess) if first.approximation == "reparam" else None
        hhat = _estimate(first.approximation, grad.to(hess.dtype), hess, normals, first.noise.scale)
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
    return perturbed(mean, hess, _normals(counter, position, hess), scale, sign, dtype)


def perturbed(
    mean: Tensor, hess: Tensor, normals: Tensor, scale: tuple[float, float], sign: float, dtype: torch.dtype
) -> Tensor:
    """The same, of noise that is at hand."""
    return _bounded(update.sample(mean, update.std(hess, *scale), _scaled(normals, sign)), dtype)


def step_values(
    q: update.Gaussian,
    grad: Tensor,
    estimate: Tensor | None,
    normals: Tensor | None,
    counter: Tensor | None,
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
    grad = _scaled(grad.to(q.hess.dtype), grad_factor)
    if estimate is not None:
        hhat = update.saturate_(estimate.to(q.hess.dtype, copy=True))
    else:
        if counter is not None:
            normals = _normals(counter, position, q.hess)
        hhat = _estimate(approximation, grad, q.hess, normals, scale)
    after = update.step(q, _scaled(grad, clip_factor), hhat, hyper, prior_mean)
    return after._replace(mean=_bounded(after.mean, dtype))


def _estimate(
    approximation: str, grad: Tensor, hess: Tensor, normals: Tensor | None, scale: tuple[float, float]
) -> Tensor:
    if approximation == "squared_gradient":
        return update.hess_squared_gradient(grad)
    assert normals is not None
    return update.hess_reparam(grad, normals, update.std(hess, *scale))


def _scaled(values: Tensor, factor: float) -> Tensor:
    return values if factor == 1.0 else values * factor


def _bounded(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Bound values, in place, to what a parameter of a smaller dtype can hold."""
    if values.dtype == dtype:
        return values
    bound = torch.finfo(dtype).max
    return values.clamp_(-bound, bound)


def _draw_kind(task: Draw) -> tuple[object, ...]:
    dtypes = (task.param.dtype, task.mean.dtype)
    return (task.param.device, dtypes, task.noise.scale, task.sign, task.normals is None)


def _step_kind(task: Step) -> tuple[object, ...]:
    prior = "tensor" if isinstance(task.prior_mean, Tensor) else task.prior_mean
    dtypes = (task.param.dtype, task.hess.dtype, task.grad.dtype)
    scalars = (task.noise.scale, task.grad_factor, task.clip_factor, task.hyper)
    hhat = (task.approximation, task.estimate is None, task.normals is None)
    return (task.param.device, dtypes, scalars, hhat, prior)


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
        stride = task.hess.stride()
        if is_dense(task.hess) and all(value.stride() == stride for value in task if isinstance(value, Tensor)):
            alike.setdefault(kind(task), []).append(task)
        else:
            otherwise([task])
    for group in alike.values():
        yield from _pieces(group, _cpu_piece() if group[0].hess.is_cpu else _DEVICE_PIECE)


def _cpu_piece() -> int:
    return _CPU_PIECE * min(torch.get_num_threads(), _CPU_THREADS)


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
    if len(piece) == 1:
        return piece[0].of(tensor(piece[0].task))
    return _flatten_dense_tensors(_in_order(piece, tensor))


def _scatter(piece: list[Segment], tensor: Callable[..., Tensor], values: Tensor) -> None:
    if len(piece) == 1:
        piece[0].of(tensor(piece[0].task)).copy_(values)
    else:
        parts = _in_order(piece, tensor)
        torch._foreach_copy_(parts, _unflatten_dense_tensors(values, parts))


def _in_order(piece: list[Segment], tensor: Callable[..., Tensor]) -> list[Tensor]:
    """Tensors of joined parameters, whole, such that their order of elements is that in memory."""
    tensors = [tensor(segment.task) for segment in piece]
    return [each if each.is_contiguous() else segment.of(each) for segment, each in zip(piece, tensors, strict=True)]


def _counters(piece: list[Segment], like: Tensor) -> tuple[Tensor, Tensor | None]:
    """The counters of a piece's pairs of normals, and where its elements are among the pairs, if not in order."""
    keys = [segment.task.noise.key for segment in piece]
    if len(piece) == 1:
        segment = piece[0]
        pairs = (segment.stop + 1) // 2 - segment.start // 2
        steps = _steps(_cpu_piece() // 2)[:pairs] if like.is_cpu else _counts(pairs, like.device)
        return steps + signed(advanced(keys[0], segment.start // 2)), None
    counter, sizes, position = _layout(tuple(segment.stop - segment.start for segment in piece), like.device)
    counter = counter.clone()
    torch._foreach_add_(counter.split(sizes), [signed(key) for key in keys])
    return counter, position


def _normals(counter: Tensor, position: Tensor | None, like: Tensor) -> Tensor:
    if torch.compiler.is_compiling():
        normals = torch.stack(normal_pairs(counter, like.dtype), -1).view(-1)
    else:
        normals = torch.empty(2 * len(counter), dtype=like.dtype, device=like.device)
        normal_pairs(counter, like.dtype, out=(normals[0::2], normals[1::2]))
    return normals[: like.numel()] if position is None else normals[position]


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
