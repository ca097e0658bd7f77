"""Where the tensors of some parameters are in memory: an engine that keeps addresses must notice when one changes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from operator import attrgetter, is_
from typing import Any

from torch import Tensor

from varlearn.core.rule import Rule
from varlearn.core.shards import PLAIN, local
from varlearn.optim.engine.plan import Member

_BYTES = attrgetter("nbytes")


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
        self._params = [member.param for member in members]
        self._states = [member.state for member in members]
        self._groups = list({id(member.group): member.group for member in members}.values())
        self._names = (*rule.state, "prior_mean", "mean")
        self._values = self._values_now()
        self._tensors = [value for value in self._values if value is not None]
        self._is_plain = all([type(tensor) in PLAIN for tensor in (*self._params, *self._tensors)])
        self._wishes = self._wishes_now()
        self.params = self._params_now()
        self._memory = self._memory_now()

    def are_same(self) -> bool:
        """Whether nothing was moved, cast, resized or replaced behind its name."""
        return (
            self.params == self._params_now()
            and self._memory == self._memory_now()
            and all(map(is_, self._values, self._values_now()))
            and self._wishes == self._wishes_now()
        )

    def moved(self) -> list[int]:
        """Positions of the parameters that are elsewhere in memory than before."""
        now = self._params_now()
        if now == self.params:
            return []
        return [k for k, (then, here) in enumerate(zip(self.params, now, strict=True)) if then != here]

    def _local(self, tensors: list[Tensor]) -> list[Tensor]:
        return tensors if self._is_plain else [local(tensor) for tensor in tensors]

    # These run before every sample and step, on hundreds of tensors: `map` takes half as long as a comprehension.

    def _params_now(self) -> list[tuple[int, int, tuple[int, ...]]]:
        """Address, size in bytes and strides of each parameter."""
        params = self._local(self._params)
        return list(zip(map(Tensor.data_ptr, params), map(_BYTES, params), map(Tensor.stride, params), strict=True))

    def _memory_now(self) -> tuple[list[int], list[int]]:
        """Addresses and sizes in bytes of the state's tensors."""
        tensors = self._local(self._tensors)
        return list(map(Tensor.data_ptr, tensors)), list(map(_BYTES, tensors))

    def _values_now(self) -> list[Any]:
        """The state's tensors, name by name; None where there is none."""
        return [value for name in self._names for value in map(dict.get, self._states, repeat(name))]

    def _wishes_now(self) -> list[tuple[object, ...]]:
        return [(group["foreach"], group["fused"], group["memory"]) for group in self._groups]
