"""The trainable parameters of an optimizer with their state, and the engines' plans for them."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from operator import is_
from typing import Any

import torch
from torch import Tensor

from varlearn.core.rule import Rule
from varlearn.optim import state
from varlearn.optim.engine import loop
from varlearn.optim.engine.choice import make_plans
from varlearn.optim.engine.plan import Fold, Member, Plan, is_guarded


class Members:
    """Finds the trainable parameters before each sample and keeps the plans for them.

    Between two samples a parameter may be frozen, moved, cast, resized, or given another state or engine. While
    nothing has changed, `find` returns the same list and `plans` the same plans.

    Args:
        rule: which state tensors a parameter has, and what the plans compute.

    >>> import torch
    >>> from collections import defaultdict
    >>> from varlearn.core.update import RULE
    >>> group = {"params": [torch.ones(2, requires_grad=True), torch.ones(3)], "hess_init": 1.0, "prior_mean": None}
    >>> [member.index for member in Members(RULE).find([group], defaultdict(dict))]
    [0]
    """

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self._members: list[Member] = []
        self._states: tuple[list[Tensor], list[dict[str, Any]]] = ([], [])
        self._planned: Sequence[Member] = ()
        self._plans: list[Plan] = []
        self._dropped = 0  # steps, by plans that are gone

    def find(self, groups: Sequence[dict[str, Any]], states: MutableMapping[Tensor, Any]) -> list[Member]:
        """The trainable parameters of `groups`. A missing state is made, in `states`."""
        # Looking a tensor up in a dict takes ten times as long as comparing it, so the states are compared in order.
        params, values = list(states), list(states.values())
        same_states = (
            len(params) == len(self._states[0])
            and all(map(is_, params, self._states[0]))
            and all(map(is_, values, self._states[1]))
        )
        known, found, index, is_same = self._members, list[tuple[Tensor, dict[str, Any], int]](), 0, same_states
        for group in groups:
            for param in group["params"]:
                if param.requires_grad:
                    place = len(found)
                    found.append((param, group, index))
                    if is_same:
                        is_same = place < len(known) and known[place].param is param
                        is_same = is_same and known[place].group is group and known[place].index == index
                index += 1
        if is_same and len(found) == len(known):
            return known
        state.refuse_missing_values([param for param, _, _ in found])
        self._members = [Member(p, state.of(states, p, group, self.rule), group, k) for p, group, k in found]
        self._states = list(states), list(states.values())
        return self._members

    def plans(self, members: Sequence[Member]) -> list[Plan]:
        """Plans for these parameters: the present ones while they hold. New ones start with the mean in the weights."""
        if members is not self._planned or not all([plan.holds() for plan in self._plans]):
            for plan in self._plans:
                plan.restore()
            self._dropped = self.settle()
            for param, its, group, _ in members:
                state.adapt(its, param, group, self.rule)
            self._plans = make_plans(members, self.rule, self._plans)
            self._planned = members
        return self._plans

    def settle(self) -> int:
        """Correct the parameters' step counts by the steps that an accelerator has dropped, and return how many."""
        count = self._dropped + sum([plan.settle() for plan in self._plans if is_guarded(plan)])
        self._dropped = 0
        return count

    def fold(self, folds: Sequence[tuple[Member, Fold]]) -> None:
        """Average the gradients and hhat of parameters with those of earlier samples."""
        places = {id(member.param): (plan, k) for plan in self._plans for k, member in enumerate(plan.members)}
        by_plan: dict[int, tuple[Plan, list[tuple[int, Fold]]]] = {}
        for member, fold in folds:
            # A parameter that was frozen since its sample is in no plan.
            plan, k = places.get(id(member.param)) or (loop.plan([member], self.rule), 0)
            by_plan.setdefault(id(plan), (plan, []))[1].append((k, fold))
        for plan, its in by_plan.values():
            plan.fold(its)

    @property
    def is_captured(self) -> bool:
        """Whether a CUDA graph has captured a plan, so that its replays take steps by themselves."""
        return any([getattr(plan, "is_captured", False) for plan in self._plans])

    @property
    def device(self) -> torch.device:
        """Of the first parameter."""
        return self._members[0].param.device if self._members else torch.device("cpu")

    def set_draws(self, groups: Sequence[dict[str, Any]], waiting: int) -> None:
        """Set "draws" of the groups to what replays of a CUDA graph have drawn, if there is one; the host then waits.

        `waiting`: how many of the samples wait for their step.
        """
        for plan in self._plans:
            if is_guarded(plan) and plan.is_captured:
                last = plan.last_draws()
                for group in groups:
                    if id(group) in last:
                        group["draws"] = last[id(group)] + 1 - waiting

    def counts(self, group: dict[str, Any]) -> dict[str, int]:
        """Engine -> how many parameters of a group it computes; and the gradients that had to be copied first."""
        found = {"native": 0, "triton": 0, "foreach": 0, "loop": 0, "converted": 0}
        for plan in self._plans:
            found[plan.engine] += sum(member.group is group for member in plan.members)
            found["converted"] += plan.converted
        return found
