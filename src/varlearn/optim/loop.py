"""The plain path: parameter after parameter, as the rule stands in `core.update`; the others are compared with it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from varlearn.core import update
from varlearn.core.noise import normal_, normal_on_grid
from varlearn.optim.tasks import Draw, Fold, Noise, Step


def draw(tasks: Sequence[Draw]) -> None:
    """Perturb each parameter (line 2)."""
    for task in tasks:
        std, normals = update.std(task.hess, *task.noise.scale), epsilon(task.hess, task.noise)
        if task.score is not None:
            update.score(normals, std, out=task.score)
        store(task.param, update.sample(task.mean, std, normals.mul_(task.sign)))


def step(tasks: Sequence[Step]) -> None:
    """Update each parameter (lines 3 to 7)."""
    for task in tasks:
        grad = task.grad.to(task.hess.dtype) * task.grad_factor
        if task.estimate is None:
            hhat = estimate(task.approximation, grad, task.hess, task.noise)
        else:
            hhat = update.saturate_(task.estimate.to(task.hess.dtype, copy=True))
        before = update.Gaussian(task.mean, task.momentum, task.hess)
        after = update.step(before, grad.mul_(task.clip_factor), hhat, task.hyper, task.prior_mean)
        for old, new in zip(before, after, strict=True):
            old.copy_(new)
        if task.param is not task.mean:
            store(task.param, task.mean)


def fold(tasks: Sequence[Fold]) -> None:
    """Average each parameter's gradient and hhat with those of the earlier samples."""
    for task in tasks:
        hhat = estimate(task.approximation, task.grad.to(task.hess.dtype), task.hess, task.noise)
        fold_in_mean(task.estimate_mean, hhat, task.count)
        if task.grad_mean is not None:
            fold_in_mean(task.grad_mean, task.grad, task.count)
            if task.captured is not None:
                task.captured.copy_(task.grad_mean)


def fold_in_mean(mean: Tensor, value: Tensor | None, count: int) -> None:
    """mean <- (count * mean + value) / (count + 1), in place; None stands for zero."""
    if count == 0:
        mean.zero_()
    mean.mul_(count / (count + 1))
    if value is not None:
        mean.add_(value, alpha=1.0 / (count + 1))


def estimate(approximation: str, grad: Tensor, hess: Tensor, noise: Noise) -> Tensor:
    """hhat of one sample: line 3, or the squared gradient."""
    if approximation == "squared_gradient":
        return update.hess_squared_gradient(grad)
    score = update.score(epsilon(hess, noise), update.std(hess, noise.ess, noise.weight_decay))
    return update.hess_reparam(grad, score)


def epsilon(like: Tensor, noise: Noise) -> Tensor:
    """The standard normals of a draw, in `like`'s shape, dtype and memory order."""
    if noise.grid is not None:
        return normal_on_grid(noise.grid, noise.key, like.dtype, like.device)
    out = torch.empty_like(like)
    normal_(out.as_strided((out.numel(),), (1,)), noise.key)
    return out


def store(param: Tensor, values: Tensor) -> None:
    """Round values into a parameter. The largest float16 is as far as they go; `values` is bounded with it."""
    if param.dtype != values.dtype:
        bound = torch.finfo(param.dtype).max
        values.clamp_(-bound, bound)
    param.copy_(values)
