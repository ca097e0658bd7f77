"""One draw of the weights: which parameters, which noise."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Protocol

from torch import Tensor

from varlearn.core.shards import PLAIN, is_sharded
from varlearn.optim.engine.plan import Member, Noises


class Products(Protocol):
    """Collects what backward makes while a sample is in the weights."""

    def open(self) -> None:
        """Begin: the sample is in the weights."""

    def close(self) -> None:
        """End: it is out again."""

    def forget_all(self) -> None:
        """The gradients of all parameters are about to be cleared."""


class Sample:
    """One draw of all trainable parameters: what decides its noise, not the numbers.

    Attributes:
        train: whether its gradients are for `step()`.
        members: the parameters that it perturbs.
        noises: id of a parameter group -> its noise.
        products: collects hhat during backward, where ranks draw independent noise.
        is_sharded: whether a parameter is spread over ranks; this rank then draws its part.
    """

    def __init__(self, train: bool, members: Sequence[Member], noises: Noises) -> None:
        self.train = train
        self.members = members
        self.noises = noises
        self.products: Products | None = None
        self.is_sharded = any([is_sharded(each.param) for each in members if type(each.param) not in PLAIN])

    @property
    def params(self) -> list[Tensor]:
        """The parameters that it perturbs."""
        return [member.param for member in self.members]

    @cached_property
    def _by_id(self) -> dict[int, Member]:
        return {id(member.param): member for member in self.members}

    def member(self, param: Tensor) -> Member:
        """A parameter that it perturbs, with its state."""
        return self._by_id[id(param)]

    def __contains__(self, param: Tensor) -> bool:
        """Whether it perturbs a parameter."""
        return id(param) in self._by_id


def all_members(samples: Sequence[Sample]) -> Sequence[Member]:
    """The parameters of all samples, each once. Several samples differ if a parameter was frozen between them."""
    first = samples[0].members
    if all([sample.members is first for sample in samples]):
        return first
    by_id = {id(member.param): member for sample in samples for member in sample.members}
    return list(by_id.values())
