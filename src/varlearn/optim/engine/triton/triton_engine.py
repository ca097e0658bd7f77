"""The Triton engine: which parameters it computes, and whether it computes them rightly on this device."""

from __future__ import annotations

import functools
import importlib.util
import warnings
from collections.abc import Sequence
from typing import Any

import torch

from varlearn.core import update, vadamw
from varlearn.core.memory_order import is_dense, same_order
from varlearn.core.noise import derive_key, normal_
from varlearn.core.rule import Rule
from varlearn.core.shards import PLAIN, local, place
from varlearn.optim.engine import loop
from varlearn.optim.engine.plan import Member, Noise, Plan, StepSettings

DEVICES = ("cuda",)  # what PyTorch calls the devices of CUDA and of ROCm
RULES = {"ivon": update.RULE, "vadamw": vadamw.RULE}
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_TOLERANCE = 1e-5  # of the self-check: what is left of rounding after a draw and a step


def supports(member: Member, rule: Rule) -> bool:
    """Whether the kernels can compute a parameter: dense, on an accelerator, with float32 state in one memory order.

    A sharded parameter is taken if this rank's part is a run of the whole, as FSDP2 cuts it.

    >>> state = {"step": 0, "momentum": torch.zeros(3), "hess": torch.ones(3)}
    >>> supports(Member(torch.zeros(3), state, {}, 0), update.RULE)
    False
    """
    param, state, _, _ = member
    if rule.name not in RULES or param.device.type not in DEVICES:
        return False
    part = local(param)
    if type(part) not in PLAIN or part.dtype not in DTYPES or not is_dense(part):
        return False
    if ("mean" in state) != (part.dtype is not torch.float32) or place(param, 0)[1] is not None:
        return False
    tensors = [local(state[name]) for name in (*rule.state, "mean", "prior_mean") if name in state]
    return all(
        type(each) in PLAIN and each.dtype is torch.float32 and each.device == part.device and same_order(part, each)
        for each in tensors
    )


def plan(members: Sequence[Member], rule: Rule, before: Any = None) -> Plan:
    """A plan that launches the kernels, for members of one device that `supports` accepts."""
    from varlearn.optim.engine.triton.triton_plan import TritonPlan

    return TritonPlan(members, rule, before)


def is_installed() -> bool:
    """Whether Triton can be imported. PyTorch's builds for CUDA and ROCm bring it along."""
    return importlib.util.find_spec("triton") is not None


def is_right_or_warn(device: torch.device, rule: Rule, dtype: torch.dtype = torch.float32) -> bool:
    """Whether the kernels of a rule do on a device what the loop does there; else one warning for the problem."""
    if not is_installed():
        return False
    problem = problem_on(device, rule.name, dtype)
    if problem is not None:
        _warn(device, problem)
    return problem is None


@functools.cache
def _warn(device: torch.device, problem: str) -> None:
    warnings.warn(
        f"the Triton engine is not used on {device}: {problem}; the foreach engine is used, which computes the same, "
        "more slowly. `varlearn doctor` says what to do about it; fused=False silences this",
        stacklevel=3,
    )


@functools.cache
def problem_on(device: torch.device, rule_name: str, dtype: torch.dtype = torch.float32) -> str | None:
    """Why the kernels of a rule cannot be used on a device, or None: they are compiled and compared with the loop."""
    try:
        difference = difference_from_loop(device, RULES[rule_name], dtype)
    except Exception as error:  # whatever the compiler or the driver raises
        first = str(error).strip().splitlines()
        return f"{type(error).__name__}: {first[0] if first else 'no message'}"
    if not difference <= _TOLERANCE:
        return f"its kernels differ from the reference by {difference:.1e}, which is more than {_TOLERANCE:.0e}"
    return None


def difference_from_loop(device: torch.device, rule: Rule, dtype: torch.dtype = torch.float32) -> float:
    """The largest difference of any number after a draw and a step of a small parameter, relative to 1 or more.

    The size has whole blocks and a part of one. In bfloat16 and float16 one of two neighbouring float32 numbers may be
    rounded up and the other down; a difference of two such steps counts as the tolerance.
    """
    noise = Noise(derive_key(seed=1, draw=1), 2.0, 0.5)
    if rule.name == "ivon":
        hyper: Any = update.Hyper(0.1, 2.0, 0.5, beta1=0.9, beta2=0.9, clip_radius=1.0, debias=0.5)
    else:
        hyper = vadamw.Hyper(lr=0.1, beta1=0.9, beta2=0.9, eps=1e-8, weight_decay=0.1, step=2)
    group: dict[str, Any] = {"foreach": None, "fused": None, "memory": "fast"}
    outcomes: list[torch.Tensor] = []
    for make in (loop.plan, plan):
        mean, first, curvature, grad = normal_(torch.empty(4, 3000), key=1).to(device)
        state = dict(zip(("step", *rule.state), (1, first, curvature.exp_()), strict=True))
        param = mean
        if dtype != torch.float32:
            param = mean.to(dtype)
            state["mean"] = mean.copy_(param)
        its = make([Member(param, state, group, 0)], rule)
        its.draw({id(group): noise})
        sample = param.clone()
        approximation = "reparam" if rule.has_products else None
        its.step([(0, grad.to(dtype), None)], [StepSettings(hyper, approximation, noise, prior_mean=0.1)])
        outcomes.append(torch.stack((sample.float(), param.float(), mean, first, curvature)))
    differences = (outcomes[1] - outcomes[0]).abs_() / outcomes[0].abs().clamp_(min=1.0)
    if dtype != torch.float32:
        differences[:2] *= _TOLERANCE / (2 * torch.finfo(dtype).eps)
    return float(differences.max())
