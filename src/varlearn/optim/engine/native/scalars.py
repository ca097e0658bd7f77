"""The scalars that the kernels are handed, as the structures of kernel.c, ivon.h and vadamw.h.

They are computed in float64 and rounded to float32 once, as PyTorch does with Python numbers that meet a tensor. What
is infinite in float32 becomes infinite here.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterable

import torch

from varlearn.core import update
from varlearn.optim.engine.plan import Fold, StepSettings

_FLOAT32 = torch.float32
_APPROXIMATIONS: dict[str | None, int] = {"reparam": 0, "squared_gradient": 1}
_GIVEN = 2


class IvonHyper(ctypes.Structure):
    """`IvonHyper` of ivon.h: the scalars of a step."""

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


def of_draws(scales: Iterable[tuple[float, float, float]]) -> list[float]:
    """The scale of sigma of each parameter at a draw, as `Scale` of kernel.c.

    That is a factor, delta, and the smallest h + delta, which is `update.lowest_precision`.

    Args:
        scales: (lambda, delta, sign) of each parameter, as `Noise.signed_scale`.

    >>> of_draws([(4.0, 0.5, -1.0)])[:2]
    [-0.5, 0.5]
    """
    relative, absolute = update.precision_floor(_FLOAT32)
    numbers: list[float] = []
    for ess, decay, sign in scales:
        numbers += (sign / math.sqrt(ess), decay, max(relative * decay, absolute))
    return numbers


def of_ivon_step(settings: StepSettings, is_given: bool) -> IvonHyper:
    """The scalars of a step; `is_given` if hhat is handed over and not made from the gradient."""
    hyper, noise, largest = settings.hyper, settings.noise, update.largest(_FLOAT32)
    return IvonHyper(
        approximation=_GIVEN if is_given else _APPROXIMATIONS[settings.approximation],
        grad_factor=settings.grad_factor,
        noise_scale=noise.sign * math.sqrt(noise.ess) * settings.grad_factor,
        noise_decay=noise.weight_decay,
        noise_lowest=update.lowest_precision(noise.weight_decay, _FLOAT32),
        beta1=hyper.beta1,
        grad_weight=(1.0 - hyper.beta1) * settings.grad_factor * settings.clip_factor,
        hess_weight=1.0 - hyper.beta2,
        decay=hyper.weight_decay,
        lowest=update.lowest_precision(hyper.weight_decay, _FLOAT32),
        lowest_hess=update.lowest_hess(hyper.weight_decay, _FLOAT32),
        debias=1.0 / hyper.debias,
        lr=hyper.lr,
        clip_radius=min(hyper.clip_radius, largest),
        prior_mean=settings.prior_mean,
        largest=largest,
        largest_mean=largest / max(1.0, hyper.weight_decay),
    )


class VadamwHyper(ctypes.Structure):
    """`VadamwHyper` of vadamw.h: the scalars of a step."""

    _fields_ = [
        (name, ctypes.c_float)
        for name in (
            "grad_factor",
            "raw_factor",
            "grad_weight",
            "beta2",
            "square_weight",
            "keep",
            "step_size",
            "debias",
            "eps",
        )
    ]


def of_vadamw_step(settings: StepSettings, is_given: bool) -> VadamwHyper:
    """The scalars of a step of variational AdamW."""
    hyper = settings.hyper
    return VadamwHyper(
        grad_factor=settings.grad_factor * settings.clip_factor,
        raw_factor=settings.grad_factor * settings.estimate_factor,
        grad_weight=1.0 - hyper.beta1,
        beta2=hyper.beta2,
        square_weight=1.0 - hyper.beta2,
        keep=1.0 - hyper.lr * hyper.weight_decay,
        step_size=hyper.lr / (1.0 - hyper.beta1**hyper.step),
        debias=1.0 / math.sqrt(1.0 - hyper.beta2**hyper.step),
        eps=hyper.eps,
    )


def of_ivon_fold(fold: Fold) -> IvonHyper:
    """The scalars of a running mean: `beta1` weighs the old mean, `grad_weight` the new value."""
    noise = fold.noise
    lowest = update.lowest_precision(noise.weight_decay, _FLOAT32)
    return IvonHyper(
        approximation=_APPROXIMATIONS[fold.approximation],
        grad_factor=1.0,
        noise_scale=noise.sign * math.sqrt(noise.ess),
        noise_decay=noise.weight_decay,
        noise_lowest=lowest,
        decay=noise.weight_decay,
        lowest=lowest,
        beta1=fold.count / (fold.count + 1),
        grad_weight=1.0 / (fold.count + 1),
        largest=update.largest(_FLOAT32),
    )
