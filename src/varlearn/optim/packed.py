"""The foreach path: the same rule, on pieces of a size that suits the device, without a compiler.

Small parameters are joined, large ones are cut, so that each tensor operation is worth its launch and, on a CPU, its
temporaries stay in the cache. Everything in the rule is elementwise; only the noise knows where a piece begins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from varlearn.core import update
from varlearn.core.noise import interleave, normal_pairs
from varlearn.optim import loop
from varlearn.optim.pieces import Piece, pieces
from varlearn.optim.scratch import Memory
from varlearn.optim.tasks import Draw, Fold, Step


class Compute(NamedTuple):
    """The arithmetic of one piece: as it stands below, in memory that is there; or compiled, into new tensors."""

    sample: Callable[..., Tensor] = lambda *args: sample_values(*args)
    step: Callable[..., update.Gaussian] = lambda *args: step_values(*args)
    in_place: bool = True


EAGER = Compute()


def draw(tasks: Sequence[Draw], compute: Compute = EAGER) -> None:
    """Perturb each parameter (line 2)."""
    for piece in pieces(tasks, loop.draw, _draw_kind):
        first = piece.first
        how = first.noise.scale, first.sign, first.score is not None
        draw_piece(piece, [task.noise.key for task in piece.tasks], *how, compute)


def draw_piece(
    piece: Piece[Any],
    keys: Sequence[int],
    scale: tuple[float, float],
    sign: float,
    keep_score: bool,
    compute: Compute = EAGER,
) -> None:
    """Perturb the "param" of a piece, from its "mean" and "hess", and write its "score" if that is wanted."""
    mean, hess, dtype = piece.flat("mean"), piece.flat("hess"), piece.first.param.dtype
    score = piece.room("score", hess.dtype) if keep_score else None
    out, memory = (piece.room("param", hess.dtype), piece.memory) if compute.in_place else (None, None)
    piece.put("param", compute.sample(mean, hess, piece.counters(keys), scale, sign, dtype, score, out, memory))
    if score is not None:
        piece.put("score", score)


def step(tasks: Sequence[Step], compute: Compute = EAGER) -> None:
    """Update each parameter (lines 3 to 7)."""
    for piece in pieces([_same_strides(task) for task in tasks], loop.step, _step_kind):
        first = piece.first
        has_prior = isinstance(first.prior_mean, Tensor)
        given = Given(
            piece.flat("grad"),
            None if first.estimate is None else piece.flat("estimate"),
            None if first.score is None else piece.flat("score"),
            piece.flat("prior_mean") if has_prior else first.prior_mean,
        )
        mean = step_piece(piece, "mean", given, [task.noise.key for task in piece.tasks], first, compute)
        if first.param is not first.mean:
            piece.put("param", mean)


class Given(NamedTuple):
    """What a step of a piece is computed from, beside what it changes; each in the order of the piece.

    Attributes:
        grad: what was accumulated.
        estimate: hhat where it is already there.
        score: epsilon / sigma, where the draw kept it.
        prior_mean: m0.
    """

    grad: Tensor
    estimate: Tensor | None
    score: Tensor | None
    prior_mean: Tensor | float


def step_piece(
    piece: Piece[Any], mean: str, given: Given, keys: Sequence[int], scalars: Step, compute: Compute = EAGER
) -> Tensor:
    """Update the "momentum", the "hess" and what is called `mean` of a piece, with the scalars of one of its steps.

    Returns:
        The new mean.
    """
    names = mean, "momentum", "hess"
    q = update.Gaussian(*(piece.flat(name) for name in names))
    grad, estimate, score, prior_mean = given
    needs_noise = scalars.approximation == "reparam" and estimate is None and score is None
    counter = piece.counters(keys) if needs_noise else None
    factors = scalars.grad_factor, scalars.clip_factor, scalars.hyper, piece.first.param.dtype
    values = (q, grad, estimate, score, counter, prior_mean, scalars.approximation, scalars.noise.scale, *factors)
    after = compute.step(*values, piece.memory if compute.in_place else None)
    for name, value in zip(names, after, strict=True):
        piece.put(name, value)
    return after.mean


def fold(tasks: Sequence[Fold]) -> None:
    """Average each parameter's gradient and hhat with those of the earlier samples."""
    for piece in pieces(tasks, loop.fold, _fold_kind):
        first = piece.first
        hess, grad = piece.flat("hess"), piece.flat("grad")
        is_reparam = first.approximation == "reparam"
        counter = piece.counters([task.noise.key for task in piece.tasks]) if is_reparam else None
        values = (grad.to(hess.dtype), hess, None, counter)
        hhat = _estimate(first.approximation, *values, first.noise.scale, piece.memory)
        means = {"estimate_mean": hhat} if first.grad_mean is None else {"estimate_mean": hhat, "grad_mean": grad}
        for name, value in means.items():
            mean = piece.flat(name)
            loop.fold_in_mean(mean, value, first.count)
            piece.put(name, mean)
            if name == "grad_mean" and first.captured is not None:
                piece.put("captured", mean)


def sample_values(
    mean: Tensor,
    hess: Tensor,
    counter: Tensor,
    scale: tuple[float, float],
    sign: float,
    dtype: torch.dtype,
    score: Tensor | None = None,
    out: Tensor | None = None,
    memory: Memory | None = None,
) -> Tensor:
    """theta of a piece, in the mean's dtype, within the range of the parameter's `dtype`.

    Args:
        mean: m.
        hess: h.
        counter: of the pairs of normals; overwritten.
        scale: (lambda, delta).
        sign: of the perturbation.
        dtype: of the parameter.
        score: receives what line 3 needs of the noise, if wanted.
        out: receives theta.
        memory: for temporaries; without it they are new tensors, which is what a compiler wants to see.
    """
    normals = _normals(counter, hess, memory)
    std = update.std(hess, *scale, out=_like(hess, memory))
    if score is not None:
        update.score(normals, std, out=score)
    return _bounded(update.sample(mean, std, _scaled(normals, sign), out=out), dtype)


def step_values(
    q: update.Gaussian,
    grad: Tensor,
    estimate: Tensor | None,
    score: Tensor | None,
    counter: Tensor | None,
    prior_mean: Tensor | float,
    approximation: str,
    scale: tuple[float, float],
    grad_factor: float,
    clip_factor: float,
    hyper: update.Hyper,
    dtype: torch.dtype,
    memory: Memory | None = None,
) -> update.Gaussian:
    """The Gaussian of a piece after one step; in place where there is memory for temporaries."""
    grad = _scaled(grad.to(q.hess.dtype), grad_factor)
    if estimate is not None:
        hhat = update.saturate_(estimate.to(q.hess.dtype, copy=True))
    else:
        hhat = _estimate(approximation, grad, q.hess, score, counter, scale, memory)
    work = (None, None) if memory is None else (hhat, _like(hhat, memory))
    grad, out = _scaled(grad, clip_factor), None if memory is None else q
    after = update.step(q, grad, hhat, hyper, prior_mean, out, work)
    return after._replace(mean=_bounded(after.mean, dtype))


def _estimate(
    approximation: str,
    grad: Tensor,
    hess: Tensor,
    score: Tensor | None,
    counter: Tensor | None,
    scale: tuple[float, float],
    memory: Memory | None,
) -> Tensor:
    """hhat of one sample, from the score of its noise, or from the noise's counters."""
    out = _like(hess, memory)
    if approximation == "squared_gradient":
        return update.hess_squared_gradient(grad, out)
    if score is None:
        assert counter is not None
        score = update.score(_normals(counter, hess, memory), update.std(hess, *scale, out=out), out)
    return update.hess_reparam(grad, score, out)


def _normals(counter: Tensor, like: Tensor, memory: Memory | None) -> Tensor:
    pairs, dtype = len(counter), like.dtype
    if memory is None:
        normals = torch.stack(normal_pairs(counter, dtype), -1).view(-1)
    else:
        first, second = normal_pairs(counter, dtype, memory.pairs(pairs, dtype))
        normals = interleave(first, second, out=memory.elements(2 * pairs, dtype))
    return normals[: like.numel()]


def _like(tensor: Tensor, memory: Memory | None) -> Tensor | None:
    return None if memory is None else memory.elements(tensor.numel(), tensor.dtype)


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
    return (task.param.device, dtypes, task.noise.scale, task.sign, task.score is None)


def _step_kind(task: Step) -> tuple[object, ...]:
    prior = "tensor" if isinstance(task.prior_mean, Tensor) else task.prior_mean
    dtypes = (task.param.dtype, task.hess.dtype, task.grad.dtype)
    scalars = (task.noise.scale, task.grad_factor, task.clip_factor, task.hyper)
    hhat = (task.approximation, task.estimate is None, task.score is None)
    return (task.param.device, dtypes, scalars, hhat, prior)


def _fold_kind(task: Fold) -> tuple[object, ...]:
    dtypes = (task.hess.dtype, task.grad.dtype, None if task.grad_mean is None else task.grad_mean.dtype)
    return (task.hess.device, dtypes, task.noise.scale, task.approximation, task.count, task.captured is None)


def _same_strides(task: Step) -> Step:
    """Copy what does not lie in memory as the parameter does."""
    if task.estimate is None and task.grad.stride() == task.param.stride():
        return task
    moved = {
        name: torch.empty_like(task.param, dtype=tensor.dtype).copy_(tensor)
        for name in ("grad", "estimate")
        if isinstance(tensor := getattr(task, name), Tensor) and tensor.stride() != task.param.stride()
    }
    return task._replace(**moved) if moved else task
