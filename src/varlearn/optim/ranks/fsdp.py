"""Sums over parameters that are spread over ranks.

The ranks that hold one sharded model run forward at one common sample, and its sharding wrapper averages their
gradients. That is the paper's average with one sample for all devices, whatever `noise` says.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal

import torch
import torch.distributed as dist
from torch import Tensor

from varlearn.core.shards import is_sharded

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


def combined(params: Sequence[Tensor], table: Tensor, how: Literal["sum", "min", "max"]) -> Tensor:
    """Statistics over all elements of all parameters, of the statistics of this rank's parts.

    Args:
        params: plain or sharded; what ranks have copies of counts once.
        table: one row of statistics for each parameter, float64 on the CPU, shape (parameters, statistics).
        how: the rows are combined.

    Returns:
        One number for each statistic, the same on all ranks.

    >>> combined([torch.zeros(1), torch.zeros(2)], torch.tensor([[1.0, 5.0], [2.0, 3.0]]), "sum")
    tensor([3., 8.])
    """
    groups = _groups(params)
    if how == "sum":
        copies = [_copies(param, groups) for param in params]
        row = (table / torch.tensor(copies, dtype=table.dtype, device=table.device).view(-1, 1)).sum(0)
    else:
        row = table.amin(0) if how == "min" else table.amax(0)
    return _reduced(row, groups, how)


def all_agree(params: Iterable[Tensor], flag: bool, place: Sequence[int] = ()) -> bool:
    """Whether `flag` is True on every rank that has a part of one of these parameters.

    Args:
        params: plain or sharded.
        flag: of this rank.
        place: integers that must be equal on these ranks, below 2^53: where this rank is in training.

    Raises:
        RuntimeError: on all of these ranks, where they are not.

    >>> all_agree([torch.zeros(1)], True)
    True
    """
    row = torch.tensor([flag, *place, *(-number for number in place)], dtype=torch.float64, device="cpu")
    lowest = _reduced(row, _groups(params), "min").tolist()
    ranges = list(zip(lowest[1 : 1 + len(place)], lowest[1 + len(place) :], strict=True))
    if any(least != -minus_largest for least, minus_largest in ranges):
        raise RuntimeError(
            f"the ranks of a sharded model are not at the same draw, step and seed: lowest and highest are "
            f"{[(int(least), int(-minus_largest)) for least, minus_largest in ranges]}; load the same checkpoint on "
            "every rank, and change group['seed'] on all ranks alike"
        )
    return bool(lowest[0])


def device_of(param: Tensor) -> torch.device:
    """Where tensors that its ranks exchange must be. Parameters may wait elsewhere (FSDP2's `CPUOffloadPolicy`).

    >>> device_of(torch.zeros(1))
    device(type='cpu')
    """
    return torch.device(param.device_mesh.device_type) if is_sharded(param) else param.device


Groups = dict[int, "tuple[DeviceMesh, list[dist.ProcessGroup]]"]


def _groups(params: Iterable[Tensor]) -> Groups:
    """Id of a mesh -> the mesh and the process groups along its dimensions; in the same order on all ranks."""
    meshes = {id(param.device_mesh): param.device_mesh for param in params if is_sharded(param)}
    return {key: (mesh, [mesh.get_group(dim) for dim in range(mesh.ndim)]) for key, mesh in meshes.items()}


def _distinct(groups: Groups) -> dict[str, dist.ProcessGroup]:
    """Each process group once: a mesh may be a slice of another."""
    return {group.group_name: group for _, along in groups.values() for group in along}


def _copies(param: Tensor, groups: Groups) -> int:
    """On how many of the ranks over which is summed each element of a parameter is found."""
    over = _distinct(groups)
    if is_sharded(param):
        for group, placement in zip(groups[id(param.device_mesh)][1], param.placements, strict=True):
            if not placement.is_replicate():
                del over[group.group_name]
    return math.prod(group.size() for group in over.values())


def _reduced(row: Tensor, groups: Groups, how: str) -> Tensor:
    for mesh, _ in list(groups.values())[:1]:
        row = row.to(mesh.device_type)
    for group in _distinct(groups).values():
        dist.all_reduce(row, getattr(dist.ReduceOp, how.upper()), group=group)
    return row.cpu()
