"""Which engine computes which parameter, decided as PyTorch's own optimizers decide.

| group                                    | parameter                              | engine  |
|------------------------------------------|----------------------------------------|---------|
| foreach=False, fused not True            | any                                    | loop    |
| fused=True, or neither is said           | float32, CPU, where C can be compiled  | native  |
|                                          | on CUDA or ROCm, where Triton is       | triton  |
| otherwise                                | plain, dense                           | foreach |
|                                          | sharded, or with gaps in memory        | loop    |

On an accelerator float32, bfloat16 and float16 parameters are taken, and the parts of sharded ones that FSDP2 makes.
Both fused engines check themselves against the loop on first use; one that fails is not used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from varlearn.core.rule import Rule
from varlearn.optim.engine import foreach, loop
from varlearn.optim.engine.native import native_engine
from varlearn.optim.engine.plan import Member, Plan
from varlearn.optim.engine.triton import triton_engine

ENGINES = {"loop": loop.plan, "foreach": foreach.plan, "native": native_engine.plan, "triton": triton_engine.plan}


def choose(member: Member, rule: Rule) -> str:
    """The name of the engine for a parameter. Compiles a fused one at the first parameter that could use it."""
    group = member.group
    if group["foreach"] is False and not group["fused"]:
        return "loop"
    if group["fused"] or (group["fused"] is None and group["foreach"] is None):
        if native_engine.supports(member, rule) and native_engine.load_or_warn():
            return "native"
        param = member.param
        if triton_engine.supports(member, rule) and triton_engine.is_right_or_warn(param.device, rule, param.dtype):
            return "triton"
    return "foreach" if foreach.supports(member, rule) else "loop"


def make_plans(members: Sequence[Member], rule: Rule, before: Sequence[Plan] = ()) -> list[Plan]:
    """A plan for each engine and, of the Triton engine, for each device that has parameters.

    Args:
        members: the parameters.
        rule: to compute.
        before: plans that these replace; their memory is used again.
    """
    by_engine: dict[tuple[str, torch.device | None], list[Member]] = {}
    for member in members:
        name = choose(member, rule)
        by_engine.setdefault(_kind(name, member), []).append(member)
    old: dict[object, Any] = {_kind(plan.engine, plan.members[0]): plan for plan in before}
    return [ENGINES[kind[0]](its, rule, old.get(kind)) for kind, its in by_engine.items()]


def _kind(name: str, member: Member) -> tuple[str, torch.device | None]:
    """Engine and device: a plan of the Triton engine has parameters of one device, the others' may have any."""
    return name, member.param.device if name == "triton" else None
