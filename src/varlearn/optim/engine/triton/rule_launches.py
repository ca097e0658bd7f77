"""The Triton kernels of each rule, and how their scalars are made. Imported only where Triton is."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import triton.language as tl

from varlearn.optim.engine.native import scalars
from varlearn.optim.engine.plan import StepSettings
from varlearn.optim.engine.triton import ivon_kernels, row_layout, vadamw_kernels

# The dtypes of parameters and gradients that the kernels read; state is float32.
DTYPES = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}


class RuleLaunches(NamedTuple):
    """The kernels of one rule, and how their scalars are made."""

    step: Any
    step_scalars: Callable[[StepSettings, bool], ctypes.Structure]
    fold: Any = None  # of rules whose hhat is a product with the noise
    debias: Callable[[StepSettings], tuple[float, float]] = lambda settings: (1.0, 0.0)


def _debias_of_ivon(settings: StepSettings) -> tuple[float, float]:
    """1 - beta1^t, and beta1 or, without debiasing, 0: from which the device makes it again if steps were dropped."""
    hyper = settings.hyper
    return hyper.debias, 0.0 if hyper.debias == 1.0 else hyper.beta1


# Of rules without a choice nothing is said, and nothing depends on it.
HOW = {"reparam": row_layout.REPARAM, "squared_gradient": row_layout.SQUARED_GRADIENT, None: row_layout.REPARAM}

LAUNCHES = {
    "ivon": RuleLaunches(ivon_kernels.step, scalars.of_ivon_step, ivon_kernels.fold, _debias_of_ivon),
    "vadamw": RuleLaunches(vadamw_kernels.step, scalars.of_vadamw_step),
}


def floats_of(structure: ctypes.Structure) -> list[float]:
    """The float fields of a structure of native/scalars.py, in order."""
    return [getattr(structure, field[0]) for field in structure._fields_ if field[1] is ctypes.c_float]
