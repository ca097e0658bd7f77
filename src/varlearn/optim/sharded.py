"""Parameters that are spread over ranks (DTensors: FSDP2, HSDP, tensor parallel), and the part that this rank has.

Everything in the rule is elementwise, so a rank draws and steps on its own part, in place, and sends nothing. Only two
things know about the whole: the noise, whose numbers go by the element's place in the whole tensor, so that a sharded
run draws what an unsharded one does; and sums over all elements (norms, KL, statistics), which are reduced here.

The ranks that hold one sharded model run forward at one common sample, and its sharding wrapper averages their
gradients. That is the paper's average with one sample for all devices, whatever `noise` says.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, TypeGuard

import torch
import torch.distributed as dist
from torch import Tensor

from varlearn.core.noise import Grid, advanced
from varlearn.optim.tasks import Noise, is_dense

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor.placement_types import Placement

_PLAIN = (Tensor, torch.nn.Parameter)


def is_sharded(tensor: Tensor) -> TypeGuard[DTensor]:
    """Whether a tensor is a DTensor; also one that all ranks have a copy of.

    >>> is_sharded(torch.zeros(1))
    False
    """
    if type(tensor) in _PLAIN:
        return False
    from torch.distributed.tensor import DTensor

    return isinstance(tensor, DTensor)


def local(tensor: Tensor) -> Tensor:
    """This rank's part of a tensor, without a copy: writing to it writes to the tensor.

    >>> weight = torch.zeros(1)
    >>> local(weight) is weight
    True
    """
    return _wait(tensor._local_tensor) if is_sharded(tensor) else tensor


def _wait(part: Tensor) -> Tensor:
    """A tensor that a collective is still filling, when it is full."""
    if type(part) in _PLAIN:
        return part
    from torch.distributed._functional_collectives import AsyncCollectiveTensor

    return part.wait() if isinstance(part, AsyncCollectiveTensor) else part


def placed_like(param: Tensor, value: Tensor) -> Tensor:
    """`value` spread over the ranks as `param` is; each rank takes its part of a plain tensor that all have.

    >>> value = torch.ones(2)
    >>> placed_like(torch.zeros(2), value) is value
    True
    """
    if not is_sharded(param):
        return value
    if is_sharded(value):
        same = value.placements == param.placements
        return value if same else value.redistribute(placements=param.placements)
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(value.detach(), param.device_mesh, param.placements, src_data_rank=None)


def noise(param: Tensor, key: int, ess: float, weight_decay: float) -> Noise:
    """The noise of this rank's part of a parameter.

    >>> noise(torch.zeros(3), key=7, ess=1.0, weight_decay=0.5)
    Noise(key=7, ess=1.0, weight_decay=0.5, grid=None)
    """
    if not is_sharded(param):
        return Noise(key, ess, weight_decay)
    stride = param.stride() if is_dense(param) else torch.empty(param.shape, device="meta").stride()
    place = _place(tuple(param.shape), tuple(stride), param.device_mesh, tuple(param.placements))
    if isinstance(place, int) and local(param).is_contiguous():
        return Noise(advanced(key, place // 2), ess, weight_decay)
    return Noise(key, ess, weight_decay, _grid(param, stride) if isinstance(place, int) else place)


def _grid(param: DTensor, stride: Sequence[int]) -> Grid:
    return Grid(_indices(tuple(param.shape), param.device_mesh, tuple(param.placements)), tuple(stride))


@lru_cache(maxsize=4096)
def _place(
    shape: tuple[int, ...], stride: tuple[int, ...], mesh: DeviceMesh, placements: tuple[Placement, ...]
) -> int | Grid:
    """The even number of the first element, where the part is one run of numbers in row-major order; else all."""
    indices = _indices(shape, mesh, placements)
    grid = Grid(indices, stride)
    if any(len(index) == 0 for index in indices):
        return 0
    row_major = torch.empty(shape, device="meta").stride()
    offset, cut = 0, False
    for size, step, expected, index in reversed(list(zip(shape, stride, row_major, indices, strict=True))):
        first, count = int(index[0]), len(index)
        if (size > 1 and step != expected) or int(index[-1]) - first + 1 != count or (cut and count > 1):
            return grid
        cut = cut or count < size
        offset += first * step
    return grid if offset % 2 else offset


@lru_cache(maxsize=4096)
def _indices(shape: tuple[int, ...], mesh: DeviceMesh, placements: tuple[Placement, ...]) -> tuple[Tensor, ...]:
    """For each dimension, the indices of the whole tensor that this rank has."""
    indices = [torch.arange(size) for size in shape]
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        return tuple(index[:0] for index in indices)
    for mesh_dim, placement in enumerate(placements):
        if placement.is_replicate():
            continue
        split: Any = placement  # Shard, or FSDP2's private kind of it for a tensor that is split along one dim twice
        dim = split.dim
        along = indices[dim].view(*[1] * dim, -1, *[1] * (len(shape) - 1 - dim))
        parts = split._split_tensor(along, mesh.size(mesh_dim), with_padding=False, contiguous=False)[0]
        indices[dim] = parts[coordinate[mesh_dim]].reshape(-1)
    return tuple(indices)


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
    meshes = _meshes(params)
    if how == "sum":
        groups = _groups(meshes)
        copies = [math.prod(group.size() for group in groups if group not in _split_over(param)) for param in params]
        row = (table / torch.tensor(copies, dtype=table.dtype).view(-1, 1)).sum(0)
    else:
        row = table.amin(0) if how == "min" else table.amax(0)
    return _reduced(row, meshes, how)


def all_agree(params: Iterable[Tensor], flag: bool) -> bool:
    """Whether `flag` is True on every rank that has a part of one of these parameters.

    >>> all_agree([torch.zeros(1)], True)
    True
    """
    return bool(_reduced(torch.tensor([float(flag)]), _meshes(params), "min"))


def _reduced(row: Tensor, meshes: Sequence[DeviceMesh], how: str) -> Tensor:
    for mesh in meshes[:1]:
        row = row.to(mesh.device_type)
    for group in _groups(meshes):
        dist.all_reduce(row, getattr(dist.ReduceOp, how.upper()), group=group)
    return row.cpu()


def _meshes(params: Iterable[Tensor]) -> list[DeviceMesh]:
    """The meshes of the sharded ones among the parameters, each once, in the same order on all ranks."""
    return list({id(param.device_mesh): param.device_mesh for param in params if is_sharded(param)}.values())


def _groups(meshes: Sequence[DeviceMesh]) -> list[dist.ProcessGroup]:
    """The process groups along the dimensions of the meshes, each once: a mesh may be a slice of another."""
    return list({group.group_name: group for mesh in meshes for group in _groups_of(mesh)}.values())


@lru_cache(maxsize=256)
def _groups_of(mesh: DeviceMesh) -> list[dist.ProcessGroup]:
    return [mesh.get_group(dim) for dim in range(mesh.ndim)]


def _split_over(param: Tensor) -> list[dist.ProcessGroup]:
    if not is_sharded(param):
        return []
    return [
        group
        for group, placement in zip(_groups_of(param.device_mesh), param.placements, strict=True)
        if not placement.is_replicate()
    ]


def reshard() -> None:
    """Make FSDP2's modules gather their weights anew: after a forward pass without backward a root keeps the old."""
    from torch.distributed._composable_state import _module_state_mapping
    from torch.distributed.fsdp import FSDPModule

    for module in list(_module_state_mapping):
        if isinstance(module, FSDPModule):
            module.reshard()
