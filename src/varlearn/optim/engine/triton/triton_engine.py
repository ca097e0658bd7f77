"""The Triton engine: which parameters it computes, and whether it computes them rightly on this device."""

from __future__ import annotations

import functools
import importlib.util
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from varlearn.core import update, vadamw
from varlearn.core.memory_order import is_dense, same_order
from varlearn.core.noise import derive_key, normal_
from varlearn.core.rule import Rule
from varlearn.core.shards import PLAIN, local, place
from varlearn.optim.engine import loop
from varlearn.optim.engine.plan import Fold, Guard, Member, Noise, Plan, StepSettings, is_guarded

DEVICES = ("cuda",)  # what PyTorch calls the devices of CUDA and of ROCm
RULES = {"ivon": update.RULE, "vadamw": vadamw.RULE}
# Scalars of the step at which the kernels of a rule are compared with the loop.
_EXAMPLES: dict[str, Any] = {
    "ivon": update.Hyper(0.1, 2.0, 0.5, beta1=0.9, beta2=0.9, clip_radius=1.0, debias=0.5),
    "vadamw": vadamw.Hyper(lr=0.1, beta1=0.9, beta2=0.9, eps=1e-8, weight_decay=0.1, step=2),
}
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_TOLERANCE = 1e-5  # of the self-check: what is left of rounding


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
    """The largest difference of any number that the kernels compute for a small parameter, relative to 1 or more.

    In bfloat16 and float16 one of two neighbouring float32 numbers may be rounded up and the other down; a difference
    of two such steps counts as the tolerance.
    """
    largest = torch.zeros((), dtype=torch.float32, device=device)
    for memory in ("fast", "lean") if dtype == torch.float32 else ("fast",):
        ours, theirs = (_computed_by(make, device, rule, dtype, memory) for make in (plan, loop.plan))
        for one, other in zip(ours, theirs, strict=True):
            difference = (one.float() - other.float()).abs_() / other.float().abs().clamp_(min=1.0)
            unit = 1.0 if one.dtype == torch.float32 else _TOLERANCE / (2 * torch.finfo(dtype).eps)
            largest = torch.maximum(largest, unit * difference.max())  # NaN stays NaN
    return float(largest)


def _computed_by(
    make: Callable[..., Any], device: torch.device, rule: Rule, dtype: torch.dtype, memory: str
) -> list[torch.Tensor]:
    """What an engine computes: two samples, a mean that comes back, a step, running means, and the looks for NaN.

    The parameter's size has whole blocks and a part of one.
    """
    noise = Noise(derive_key(seed=1, draw=1), 2.0, 0.5)
    group: dict[str, Any] = {"foreach": None, "fused": None, "memory": memory}
    numbers = normal_(torch.empty(6, 3000, dtype=torch.float32, device="cpu"), key=1).to(device)
    mean, first, curvature, grad, estimate_mean, grad_mean = numbers
    grad, grad_mean = grad.to(dtype), grad_mean.to(dtype)
    state = dict(zip(("step", *rule.state), (1, first, curvature.exp_()), strict=True))
    param = mean.to(dtype)
    if dtype != torch.float32:
        state["mean"] = mean.copy_(param)
    its = make([Member(param, state, group, 0)], rule)
    its.draw({id(group): noise})
    seen = [param.clone()]
    its.restore()
    seen.append(param.clone())
    if rule.has_products:
        its.fold([(0, Fold(grad, grad_mean, estimate_mean, "reparam", noise, count=2))])
    its.draw({id(group): noise})
    settings = StepSettings(_EXAMPLES[rule.name], "reparam" if rule.has_products else None, noise, prior_mean=0.1)
    its.step([(0, grad, None)], [settings])
    bad = grad.clone()
    bad[-1] = math.nan
    found = torch.tensor([its.all_finite([(0, each, None)]) for each in (grad, bad)], device=device)
    if is_guarded(its):
        its.step([(0, bad, None)], [settings], guard=Guard())  # which is dropped
    return [*seen, param, mean, first, curvature, estimate_mean, grad_mean, found.float()]
