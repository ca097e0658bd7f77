"""The native engine: the kernels in C, compiled and checked on first use, and plans that call them."""

from __future__ import annotations

import ctypes
import functools
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from varlearn.core import update
from varlearn.core.noise import derive_key, normal_
from varlearn.core.rule import Rule
from varlearn.optim.engine import loop
from varlearn.optim.engine.native import compilation
from varlearn.optim.engine.native.native_plan import NativePlan, supports
from varlearn.optim.engine.native.rule_kernels import RULES
from varlearn.optim.engine.plan import Member, Noise, Plan, StepSettings

__all__ = ["available", "load", "load_or_warn", "plan", "supports"]


def plan(members: Sequence[Member], rule: Rule, before: NativePlan | None = None) -> NativePlan:
    """A plan that calls the kernels, for members that `supports` accepts."""
    return NativePlan(members, rule, load(), before)


def load() -> ctypes.CDLL:
    """The compiled kernels, made on first use.

    Raises:
        compilation.BuildError: there is no C compiler, it fails, or the result does not agree with the reference.
    """
    kernels = _attempt()
    if isinstance(kernels, compilation.BuildError):
        raise kernels
    return kernels


def available() -> bool:
    """Whether this machine has the native engine; compiles it if need be."""
    return not isinstance(_attempt(), compilation.BuildError)


def load_or_warn() -> bool:
    """`available`, with one warning in the life of the process if it is not."""
    problem = _attempt()
    if isinstance(problem, compilation.BuildError):
        _warn(str(problem))
        return False
    return True


@functools.cache
def _warn(problem: str) -> None:
    warnings.warn(
        f"the native engine could not be compiled ({problem}); the foreach engine is used, which computes the same, "
        "more slowly. Install a C compiler (gcc or clang) or set CC to one; fused=False silences this",
        stacklevel=3,
    )


@functools.cache
def _attempt() -> ctypes.CDLL | compilation.BuildError:
    try:
        kernels = compilation.load(Path(__file__).with_name("kernel.c"))
    except compilation.BuildError as error:
        return error
    of_rules = [name for its in RULES.values() for name in (its.step, its.fold) if name]
    for name in ("varlearn_draw", "varlearn_restore", "varlearn_check", *of_rules):
        kernel = getattr(kernels, name)
        kernel.restype = None
        kernel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_void_p]
    return kernels if _agrees(kernels) else compilation.BuildError("the compiled code is wrong on a small example")


def _agrees(kernels: ctypes.CDLL) -> bool:
    """Whether the kernels agree with the reference on a few numbers; a compiler may have a bug."""
    noise = Noise(derive_key(seed=1, draw=1), 2.0, 0.5)
    hyper = update.Hyper(0.1, 2.0, 0.5, beta1=0.9, beta2=0.9, clip_radius=1.0, debias=0.5)
    group: dict[str, Any] = {"foreach": None, "fused": None, "memory": "fast"}
    outcomes = []
    for plain in (True, False):
        mean, momentum, hess, grad = normal_(torch.empty(4, 300, dtype=torch.float32, device="cpu"), key=1)
        members = [Member(mean, {"step": 0, "momentum": momentum, "hess": hess.exp_()}, group, 0)]
        its: Plan = loop.plan(members, update.RULE) if plain else NativePlan(members, update.RULE, kernels)
        its.draw({id(group): noise})
        sample = mean.clone()
        its.step([(0, grad, None)], [StepSettings(hyper, "reparam", noise, prior_mean=0.1)])
        outcomes.append(torch.stack((sample, mean, momentum, hess)))
    return torch.allclose(*outcomes, rtol=1e-4, atol=1e-4)
