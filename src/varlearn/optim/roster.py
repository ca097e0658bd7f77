"""Who takes part in a sample: the trainable parameters, each with its state and, where it has them, its addresses."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from varlearn.optim import paths, state
from varlearn.optim.addresses import Addresses, asked
from varlearn.optim.tasks import Draw, Noise


class Member(NamedTuple):
    """A trainable parameter.

    Attributes:
        param: the parameter.
        state: its state.
        group: the group it is in.
        index: its number among all parameters of the optimizer.
        at: where it lies in memory, for paths that take many parameters in one go; None where it goes by itself.
    """

    param: Tensor
    state: dict[str, Any]
    group: dict[str, Any]
    index: int
    at: Addresses | None


class Roster:
    """Calls the trainable parameters before each sample.

    Between two samples a parameter may be frozen, moved, cast, resized, given another state or another path. Those with
    addresses are known from the last call and only asked whether anything has changed; the others are met anew.

    >>> import torch
    >>> from collections import defaultdict
    >>> group = {"params": [torch.ones(2, requires_grad=True), torch.ones(3)], "hess_init": 1.0, "prior_mean": None}
    >>> group |= {"foreach": True, "fused": None, "memory": "fast"}
    >>> [member.index for member in Roster().call([group], defaultdict(dict))]
    [0]
    """

    def __init__(self) -> None:
        self._known: dict[int, Member] = {}  # by id: hashing a tensor is ten times slower
        self._settled: set[int] = set()  # ids of tensors that lie where they should

    def call(self, groups: Sequence[dict[str, Any]], states: MutableMapping[Tensor, Any]) -> list[Member]:
        """The trainable parameters of `groups`, with their states from `states`, where they are made if need be."""
        members: list[Member] = []
        known, index, is_changed = self._known, 0, False
        for group in groups:
            wants = asked(group)
            for param in group["params"]:
                if param.requires_grad:
                    member = known.get(id(param))
                    if (
                        member is None
                        or member.group is not group
                        or member.index != index
                        or states.get(param) is not member.state
                        or (at := member.at) is None
                        or at.asked != wants
                        or not at.hold()
                    ):
                        if not is_changed:
                            state.refuse_missing_values(each for group in groups for each in group["params"])
                            is_changed = True
                        member = Member(param, state.of(states, param, group), group, index, None)
                    members.append(member)
                index += 1
        if is_changed:
            members = self._meet(members)
        if is_changed or len(known) != len(members):
            self._known = {id(member.param): member for member in members if member.at is not None}
        return members

    def _meet(self, members: list[Member]) -> list[Member]:
        """Take down who lies where; before, settle the state of those that may be joined, which may lie anywhere."""
        chosen: list[paths.Path] = [_path(member) for member in members]
        states = [each.state for each, path in zip(members, chosen, strict=True) if path in ("packed", "compiled")]
        if not all(id(each[name]) in self._settled for each in states for name in ("momentum", "hess")):
            state.settle(states)
            self._settled = {id(each[name]) for each in states for name in ("momentum", "hess")}
        return [_with_addresses(each, path) for each, path in zip(members, chosen, strict=True)]


def _path(member: Member) -> paths.Path:
    if member.at is not None:
        return member.at.path
    return paths.choose(member.group, Draw(member.param, member.param, member.state["hess"], Noise(0, 1.0, 0.0)))


def _with_addresses(member: Member, path: paths.Path) -> Member:
    """The same member, with addresses that hold, where many of its kind are taken in one go."""
    if member.at is not None and member.at.hold():
        return member
    param, its, group, index, _ = member
    if path == "native" or (path == "packed" and group["memory"] != "lean"):
        return Member(param, its, group, index, Addresses.of(param, its, group, index, path))
    return member
