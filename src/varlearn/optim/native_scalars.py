"""The scalars that native.c is handed, as its structures: computed in float64 and rounded to float32 once.

PyTorch does the same with the Python numbers that meet a tensor. What is infinite in float32 becomes infinite here.
"""

from __future__ import annotations

import ctypes
import math

import torch

from varlearn.core import update
from varlearn.optim.tasks import Fold, Noise, Step

_FLOAT32 = torch.float32
_APPROXIMATIONS = {"reparam": 0, "squared_gradient": 1, "given": 2}


class Scale(ctypes.Structure):
    """`Scale` of native.c: what sigma is made of."""

    _fields_ = [(name, ctypes.c_float) for name in ("scale", "decay", "lowest")]


class Hyper(ctypes.Structure):
    """`Hyper` of native.c: the scalars of a step."""

    _fields_ = [
        ("approximation", ctypes.c_int64),
        ("grad_factor", ctypes.c_float),
        ("noise_scale", ctypes.c_float),
        ("noise_decay", ctypes.c_float),
        ("noise_lowest", ctypes.c_float),
        ("beta1", ctypes.c_float),
        ("grad_weight", ctypes.c_float),
        ("hess_weight", ctypes.c_float),
        ("decay", ctypes.c_float),
        ("lowest", ctypes.c_float),
        ("lowest_hess", ctypes.c_float),
        ("debias", ctypes.c_float),
        ("lr", ctypes.c_float),
        ("clip_radius", ctypes.c_float),
        ("prior_mean", ctypes.c_float),
        ("largest", ctypes.c_float),
        ("largest_mean", ctypes.c_float),
    ]


def of_draw(noise: Noise, sign: float) -> Scale:
    """The scale of sigma at a draw.

    >>> scale = of_draw(Noise(key=0, ess=4.0, weight_decay=0.5), sign=-1.0)
    >>> scale.scale, scale.decay
    (-0.5, 0.5)
    """
    decay = noise.weight_decay
    return Scale(sign / math.sqrt(noise.ess), decay, update.lowest_precision(decay, _FLOAT32))


def of_step(task: Step, prior_mean: float) -> Hyper:
    """The scalars of a step; `prior_mean` counts where the task's own is a number."""
    hyper, noise, largest = task.hyper, task.noise, update.largest(_FLOAT32)
    return Hyper(
        approximation=_APPROXIMATIONS[task.approximation if task.estimate is None else "given"],
        grad_factor=task.grad_factor,
        noise_scale=math.sqrt(noise.ess) * task.grad_factor,
        noise_decay=noise.weight_decay,
        noise_lowest=update.lowest_precision(noise.weight_decay, _FLOAT32),
        beta1=hyper.beta1,
        grad_weight=(1.0 - hyper.beta1) * task.grad_factor * task.clip_factor,
        hess_weight=1.0 - hyper.beta2,
        decay=hyper.weight_decay,
        lowest=update.lowest_precision(hyper.weight_decay, _FLOAT32),
        lowest_hess=update.lowest_hess(hyper.weight_decay, _FLOAT32),
        debias=1.0 / hyper.debias,
        lr=hyper.lr,
        clip_radius=min(hyper.clip_radius, largest),
        prior_mean=prior_mean,
        largest=largest,
        largest_mean=largest / max(1.0, hyper.weight_decay),
    )


def of_fold(task: Fold) -> Hyper:
    """The scalars of a running mean: `beta1` weighs the old mean, `grad_weight` the new value."""
    noise = task.noise
    lowest = update.lowest_precision(noise.weight_decay, _FLOAT32)
    return Hyper(
        approximation=_APPROXIMATIONS[task.approximation],
        grad_factor=1.0,
        noise_scale=math.sqrt(noise.ess),
        noise_decay=noise.weight_decay,
        noise_lowest=lowest,
        decay=noise.weight_decay,
        lowest=lowest,
        beta1=task.count / (task.count + 1),
        grad_weight=1.0 / (task.count + 1),
        largest=update.largest(_FLOAT32),
    )
