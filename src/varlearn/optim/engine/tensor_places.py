"""Where the tensors of some parameters are in memory: an engine that keeps addresses must notice when one changes."""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_
from typing import Any

from torch import Tensor

from varlearn.core.rule import Rule
from varlearn.core.shards import PLAIN, local
from varlearn.optim.engine.plan import Member


class TensorPlaces:
    """The places of parameters and their state, and the wishes of their groups, when a plan was made.

    Of sharded parameters this rank's parts count.

    Args:
        members: the parameters.
        rule: which state tensors they have.

    >>> import torch
    >>> from varlearn.core.update import RULE
    >>> group = {"foreach": None, "fused": None, "memory": "fast"}
    >>> state = {"momentum": torch.zeros(3), "hess": torch.ones(3)}
    >>> places = TensorPlaces([Member(torch.zeros(3), state, group, 0)], RULE)
    >>> places.are_same()
    True
    >>> state["hess"] = torch.ones(3)
    >>> places.are_same()
    False
    """

    def __init__(self, members: Sequence[Member], rule: Rule) -> None:
        self._members = members
        self._names = (*rule.state, "prior_mean", "mean")
        self._params = [member.param for member in members]
        self._values = self._values_now()
        self._tensors = [value for value in self._values if value is not None]
        self._is_plain = all([type(tensor) in PLAIN for tensor in (*self._params, *self._tensors)])
        self._wishes = self._wishes_now()
        self.params = self._params_now()
        self._states = self._states_now()

    def are_same(self) -> bool:
        """Whether nothing was moved, cast, resized or replaced behind its name."""
        return (
            self.params == self._params_now()
            and self._states == self._states_now()
            and all(map(is_, self._values, self._values_now()))
            and self._wishes == self._wishes_now()
        )

    def moved(self) -> list[int]:
        """Positions of the parameters whose memory is not the one that it was."""
        now = self._params_now()
        if now == self.params:
            return []
        return [k for k, (then, here) in enumerate(zip(self.params, now, strict=True)) if then != here]

    def _local(self, tensors: list[Tensor]) -> list[Tensor]:
        return tensors if self._is_plain else [local(tensor) for tensor in tensors]

    def _params_now(self) -> list[tuple[int, int, tuple[int, ...]]]:
        """Address, size in bytes and strides of each parameter."""
        return [(param.data_ptr(), param.nbytes, param.stride()) for param in self._local(self._params)]

    def _states_now(self) -> list[tuple[int, int]]:
        return [(tensor.data_ptr(), tensor.nbytes) for tensor in self._local(self._tensors)]

    def _values_now(self) -> list[Any]:
        return [state.get(name) for _, state, _, _ in self._members for name in self._names]

    def _wishes_now(self) -> list[tuple[object, ...]]:
        groups = {id(member.group): member.group for member in self._members}
        return [(group["foreach"], group["fused"], group["memory"]) for group in groups.values()]
