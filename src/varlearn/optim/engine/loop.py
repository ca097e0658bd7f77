"""The reference engine: parameter after parameter, for every dtype, device, memory order and shard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from varlearn.core.noise import normal_, normal_on_grid
from varlearn.core.rule import Rule
from varlearn.core.shards import place
from varlearn.optim.engine.plan import Member
from varlearn.optim.engine.tensor_plan import TensorPlan


class WholeParameter(NamedTuple):
    """The chunk that is one parameter: of a sharded one, this rank's part."""

    positions: tuple[int]
    param: Tensor

    def join(self, tensors: Sequence[Tensor]) -> Tensor:
        """The tensor itself."""
        return tensors[0]

    def put(self, tensors: Sequence[Tensor], values: Tensor) -> None:
        """Copy the values."""
        tensors[0].copy_(values)

    def spread(self, values: Sequence[float], like: Tensor) -> Tensor | float:
        """The number."""
        return values[0]

    def normals(self, keys: Sequence[int], like: Tensor) -> Tensor:
        """The noise in the memory order of `like`; of a shard, the numbers that its elements have in the whole."""
        key, grid = place(self.param, keys[0])
        if grid is not None:
            return normal_on_grid(grid, key, like.dtype, like.device)
        out = torch.empty_like(like)
        normal_(out.as_strided((out.numel(),), (1,)), key)
        return out


def whole_parameters(members: Sequence[Member]) -> list[WholeParameter]:
    """One chunk for each parameter."""
    return [WholeParameter((k,), member.param) for k, member in enumerate(members)]


def plan(members: Sequence[Member], rule: Rule, before: TensorPlan | None = None) -> TensorPlan:
    """A plan that computes one parameter after the other."""
    chunks = whole_parameters(members)
    return TensorPlan("loop", members, rule, chunks, chunks, before)
