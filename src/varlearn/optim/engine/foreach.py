"""The engine of few large tensor operations: small parameters are joined into chunks, large ones are cut.

An operation on a small tensor takes longer to launch than to compute. On a CPU, temporaries of a chunk stay in the
cache; those of a large parameter would not, and noise alone makes a dozen of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from varlearn.core.joined import joined_normals
from varlearn.core.memory_order import flat, is_dense, same_order
from varlearn.core.noise import advanced
from varlearn.core.rule import Rule
from varlearn.core.shards import PLAIN
from varlearn.optim.engine.loop import whole_parameters
from varlearn.optim.engine.plan import Member
from varlearn.optim.engine.tensor_plan import TensorPlan

# Elements in a chunk: fewer do not pay for the launches, more leave the caches.
_CPU_CHUNK = 3 << 16
_DEVICE_CHUNK = 1 << 26


class FlatChunk(NamedTuple):
    """Elements start to stop, in memory order, of a parameter; or all elements of several."""

    positions: tuple[int, ...]
    sizes: tuple[int, ...]
    start: int = 0

    def join(self, tensors: Sequence[Tensor]) -> Tensor:
        """A view of one parameter; a copy of several, one after the other."""
        if len(tensors) == 1:
            return flat(tensors[0])[self.start : self.start + self.sizes[0]]
        return torch.cat([flat(tensor) for tensor in tensors])

    def put(self, tensors: Sequence[Tensor], values: Tensor) -> None:
        """Copy the values to where they belong."""
        if len(tensors) == 1:
            self.join(tensors).copy_(values)
        else:
            torch._foreach_copy_([flat(tensor) for tensor in tensors], list(values.split(self.sizes)))

    def spread(self, values: Sequence[float], like: Tensor) -> Tensor | float:
        """One number where all are equal; else the number of its parameter for each element."""
        if len(set(values)) == 1:
            return values[0]
        numbers = torch.tensor(values, dtype=like.dtype, device=like.device)
        return numbers.repeat_interleave(torch.tensor(self.sizes, device=like.device))

    def normals(self, keys: Sequence[int], like: Tensor) -> Tensor:
        """The noise of all parameters by few operations."""
        parts = joined_normals([advanced(key, self.start // 2) for key in keys], self.sizes, like.dtype, like.device)
        return parts[0] if len(parts) == 1 else torch.cat(parts)


def supports(member: Member, rule: Rule) -> bool:
    """Whether a parameter can be computed in chunks: plain tensors, dense, in one memory order."""
    param, state, _, _ = member
    tensors = [state[name] for name in (*rule.state, "mean", "prior_mean") if name in state]
    is_plain = type(param) in PLAIN and is_dense(param)
    return is_plain and all(type(each) in PLAIN and same_order(param, each) for each in tensors)


def plan(members: Sequence[Member], rule: Rule, before: TensorPlan | None = None) -> TensorPlan:
    """A plan that computes chunks of parameters of one group, dtype and device."""
    alike: dict[tuple[object, ...], list[int]] = {}
    for k, (param, state, group, _) in enumerate(members):
        alike.setdefault((id(group), param.device, param.dtype, "prior_mean" in state), []).append(k)
    sizes = [member.param.numel() for member in members]
    chunks = [
        chunk
        for (_, device, _, _), positions in alike.items()
        for chunk in _chunks(positions, sizes, _CPU_CHUNK if device == torch.device("cpu") else _DEVICE_CHUNK)
    ]
    return TensorPlan("foreach", members, rule, chunks, whole_parameters(members), before)


def _chunks(positions: Sequence[int], sizes: Sequence[int], limit: int) -> Iterator[FlatChunk]:
    """Chunks of about `limit` elements. A cut lies at an even place, because noise comes in pairs."""
    joined: list[int] = []
    room = limit
    for k in positions:
        if sizes[k] >= limit:
            count = -(-sizes[k] // max(1, round(sizes[k] / limit)))
            count += count % 2
            for start in range(0, sizes[k], count):
                yield FlatChunk((k,), (min(count, sizes[k] - start),), start)
        elif sizes[k]:
            if sizes[k] > room:
                yield FlatChunk(tuple(joined), tuple(sizes[j] for j in joined))
                joined, room = [], limit
            joined.append(k)
            room -= sizes[k]
    if joined:
        yield FlatChunk(tuple(joined), tuple(sizes[j] for j in joined))
