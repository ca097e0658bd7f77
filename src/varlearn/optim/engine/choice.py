"""Which engine computes which parameter, decided as PyTorch's own optimizers decide.

| group                                    | parameter                              | engine  |
|------------------------------------------|----------------------------------------|---------|
| foreach=False, fused not True            | any                                    | loop    |
| fused=True, or neither is said           | float32, CPU, where C can be compiled  | native  |
| otherwise                                | plain, dense                           | foreach |
|                                          | sharded, or with gaps in memory        | loop    |

The kernel of accelerators will get a row of its own above `foreach`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from varlearn.core.rule import Rule
from varlearn.optim.engine import foreach, loop
from varlearn.optim.engine.native import native_engine
from varlearn.optim.engine.plan import Member, Plan

ENGINES = {"loop": loop.plan, "foreach": foreach.plan, "native": native_engine.plan}


def choose(member: Member, rule: Rule) -> str:
    """The name of the engine for a parameter. Compiles the native one at the first parameter that could use it."""
    group = member.group
    if group["foreach"] is False and not group["fused"]:
        return "loop"
    wants_native = group["fused"] or (group["fused"] is None and group["foreach"] is None)
    if wants_native and native_engine.supports(member, rule) and native_engine.load_or_warn():
        return "native"
    return "foreach" if foreach.supports(member, rule) else "loop"


def make_plans(members: Sequence[Member], rule: Rule, before: Sequence[Plan] = ()) -> list[Plan]:
    """A plan for each engine that has parameters.

    Args:
        members: the parameters.
        rule: to compute.
        before: plans that these replace; their memory is used again.
    """
    by_engine: dict[str, list[Member]] = {}
    for member in members:
        by_engine.setdefault(choose(member, rule), []).append(member)
    old: dict[str, Any] = {plan.engine: plan for plan in before}
    return [ENGINES[name](its, rule, old.get(name)) for name, its in by_engine.items()]
