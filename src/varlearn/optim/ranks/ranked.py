"""What an optimizer knows about the other ranks: whose noise it draws, and how samples are averaged over them."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import torch
from torch import Tensor

from varlearn.core.shards import PLAIN, is_sharded
from varlearn.optim.ranks import ddp, fsdp, rank_agreement
from varlearn.optim.ranks.join import UnevenInputs
from varlearn.optim.ranks.rank_agreement import Place
from varlearn.optim.sampling.members import Members
from varlearn.optim.sampling.sample import Sample
from varlearn.optim.sampling.sample_average import SampleAverage


class Ranked(UnevenInputs):
    """The part of a variational optimizer that depends on the process group."""

    param_groups: list[dict[str, Any]]
    defaults: dict[str, Any]
    state: MutableMapping[Tensor, Any]
    _members: Members
    _has_agreed: bool

    def _is_distributed(self) -> bool:
        """Whether ranks draw independent noise, so that products must be averaged and not only gradients."""
        return any([self._replica(group) is not None for group in self.param_groups])

    def _replica(self, group: dict[str, Any]) -> int | None:
        """Which noise this rank draws for a group; None where all ranks draw the same."""
        if rank_agreement.world_size() == 1 or group["noise"] == "shared":
            return None
        # Sharded parameters make one model of the ranks, with one sample.
        return None if self._has_shards() else rank_agreement.rank()

    def _has_shards(self) -> bool:
        params = [param for group in self.param_groups for param in group["params"] if type(param) not in PLAIN]
        return any([is_sharded(param) for param in params])

    def _agree(self) -> None:
        """Before the first sample: all ranks take rank 0's seed. Then any rank's checkpoint serves all ranks."""
        if not self._has_agreed and rank_agreement.world_size() > 1:
            rank_agreement.agree_on_seeds(self.defaults, self.param_groups, self._exchange_device())
            self._has_agreed = True

    def _exchange_device(self) -> torch.device:
        return fsdp.device_of(self.param_groups[0]["params"][0])

    def _place(self) -> Place:
        """What all ranks must have in common at a step."""
        states = (self.state.get(param) for group in self.param_groups for param in group["params"])
        step = next((int(state["step"]) for state in states if state and "step" in state), 0)
        shared = (group for group in self.param_groups if self._replica(group) is None)
        return Place(self.param_groups[0]["draws"], step, rank_agreement.seeds_of(shared))

    def _new_average(self) -> SampleAverage:
        self._agree()
        if self._is_distributed():
            return ddp.RankAverage(self._members, self._place(), self._divide_by_all)
        if rank_agreement.world_size() > 1 and not self._has_shards():
            return ddp.SharedAverage(self._members, self._place(), self._exchange_device())
        return SampleAverage(self._members)

    def _collect_products(self, sample: Sample) -> None:
        """Collect hhat of a training sample during backward, where ranks draw independent noise."""
        if self._is_distributed():
            sample.products = ddp.LocalProducts(sample, self._members)
