"""The Triton kernels of each rule, and how their scalars are made. Imported only where Triton is."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import triton.language as tl

from varlearn.optim.annealing import annealing_law
from varlearn.optim.engine.native import scalars
from varlearn.optim.engine.plan import Member, Noise, StepSettings
from varlearn.optim.engine.triton import ivon_kernels, row_layout, vadamw_kernels

# The dtypes of parameters and gradients that the kernels read; state is float32.
DTYPES = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}


class RuleLaunches(NamedTuple):
    """The kernels of one rule, and how their scalars are made.

    Attributes:
        step: the kernel of lines 3 to 7.
        step_scalars: (settings, whether hhat is given) -> the scalars of a step.
        fold: the kernel of running means, of rules whose hhat is a product with the noise.
        facts: settings -> the first five of `row_layout.FACTS`: what depends on the number of the step.
        scaling: (member, noise, drift known to the host) -> `row_layout.SCALING`, if sigma depends on that number.
    """

    step: Any
    step_scalars: Callable[[StepSettings, bool], ctypes.Structure]
    facts: Callable[[StepSettings], tuple[float, ...]]
    fold: Any = None
    scaling: Callable[[Member, Noise, int], tuple[float, ...]] | None = None


def _facts_of_ivon(settings: StepSettings) -> tuple[float, ...]:
    hyper = settings.hyper
    return hyper.debias, 0.0 if hyper.debias == 1.0 else hyper.beta1, 1.0, 0.0, settings.max_norm, hyper.lr, 0.0


def _facts_of_vadamw(settings: StepSettings) -> tuple[float, ...]:
    hyper = settings.hyper
    first, second = (1.0 - beta**hyper.step for beta in (hyper.beta1, hyper.beta2))
    return first, hyper.beta1, second, hyper.beta2, settings.max_norm, hyper.lr, hyper.weight_decay


def _scaling_of_vadamw(member: Member, noise: Noise, drift: int) -> tuple[float, ...]:
    group, taken = member.group, int(member.state["step"])
    start, ratio, end = float(group["ess"]), 1.0, 0.0
    if group.get("anneal"):
        start, ratio, end = annealing_law(group)
    factor = noise.sign / math.sqrt(noise.ess)
    others = float(group["batch_size"]), float(group["betas"][1]), float(member.state["prior_std"])
    return (taken - drift, taken, factor, noise.weight_decay, start, ratio, end, *others)


# Of rules without a choice nothing is said, and nothing depends on it.
HOW = {"reparam": row_layout.REPARAM, "squared_gradient": row_layout.SQUARED_GRADIENT, None: row_layout.REPARAM}

LAUNCHES = {
    "ivon": RuleLaunches(ivon_kernels.step, scalars.of_ivon_step, _facts_of_ivon, ivon_kernels.fold),
    "vadamw": RuleLaunches(vadamw_kernels.step, scalars.of_vadamw_step, _facts_of_vadamw, scaling=_scaling_of_vadamw),
}


def floats_of(structure: ctypes.Structure) -> list[float]:
    """The float fields of a structure of native/scalars.py, in order."""
    return [getattr(structure, field[0]) for field in structure._fields_ if field[1] is ctypes.c_float]
