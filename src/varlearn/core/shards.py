"""Tensors that are spread over ranks (DTensors: FSDP2, HSDP, tensor parallel), and the part that this rank has.

Everything in the rule is elementwise, so a rank works on its own part, in place, and sends nothing. The noise alone
knows about the whole: its numbers go by an element's place in the whole tensor, so that a sharded run draws what an
unsharded one does.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
from torch import Tensor, nn

from varlearn.core.noise import Grid, advanced, normal_, normal_on_grid

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor.placement_types import Placement

PLAIN = (Tensor, nn.Parameter)  # tensors that are not of a subclass, which may redefine any operation


def is_sharded(tensor: Tensor) -> TypeGuard[DTensor]:
    """Whether a tensor is a DTensor; also one that all ranks have a copy of.

    >>> is_sharded(torch.zeros(1))
    False
    """
    if type(tensor) in PLAIN:
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
    if type(part) in PLAIN:
        return part
    from torch.distributed._functional_collectives import AsyncCollectiveTensor

    return part.wait() if isinstance(part, AsyncCollectiveTensor) else part


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor, gathered from the ranks if it is sharded; then all of them must call this.

    >>> weight = torch.zeros(1)
    >>> whole(weight) is weight
    True
    """
    return tensor.full_tensor() if is_sharded(tensor) else tensor


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


def place(tensor: Tensor, key: int) -> tuple[int, Grid | None]:
    """Where the noise of this rank's part of a tensor is found.

    Returns:
        (key, None) where the part has the first numbers of that key, in memory order; else `key` itself and which ones.

    >>> place(torch.zeros(3), key=7)
    (7, None)
    """
    if not is_sharded(tensor):
        return key, None
    indices = _indices_of(tensor)
    if tensor.is_contiguous() and local(tensor).is_contiguous():
        offset = _run(tuple(tensor.shape), indices)
        if offset is not None:
            return advanced(key, offset // 2), None
    return key, Grid(indices, _dense_strides(tensor))


def normal_like(tensor: Tensor, key: int, dtype: torch.dtype) -> Tensor:
    """Standard normals of a tensor's shape, numbered in row-major order, spread over the ranks as the tensor is.

    >>> torch.equal(normal_like(torch.zeros(3), 7, torch.float32), normal_(torch.empty(3), 7))
    True
    """
    if not is_sharded(tensor):
        return normal_(torch.empty(tensor.shape, device=tensor.device, dtype=dtype), key)
    from torch.distributed.tensor import DTensor

    strides = _row_major(tuple(tensor.shape))
    part = normal_on_grid(Grid(_indices_of(tensor), strides), key, dtype, local(tensor).device)
    mesh, placements = tensor.device_mesh, tensor.placements
    return DTensor.from_local(part, mesh, placements, run_check=False, shape=tensor.shape, stride=strides)


def _dense_strides(tensor: Tensor) -> tuple[int, ...]:
    """The strides of a dense copy of the tensor: they number its elements from 0 to its size."""
    return tuple(torch.empty_strided(tensor.shape, tensor.stride(), device="meta").clone().stride())


def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(torch.empty(shape, device="meta").stride())


def _run(shape: tuple[int, ...], indices: tuple[Tensor, ...]) -> int | None:
    """The number of a part's first element in row-major order, where it is even and the others follow it; else None."""
    offset, cut = 0, False
    for size, stride, index in reversed(list(zip(shape, _row_major(shape), indices, strict=True))):
        count = len(index)
        if count == 0:
            return 0
        first = int(index[0])
        if int(index[-1]) - first + 1 != count or (cut and count > 1):
            return None
        cut = cut or count < size
        offset += first * stride
    return None if offset % 2 else offset


def _indices_of(tensor: DTensor) -> tuple[Tensor, ...]:
    mesh = tensor.device_mesh
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        raise RuntimeError(f"this rank is not on the mesh {mesh} of a parameter; leave the parameter to its own ranks")
    return _indices(tuple(tensor.shape), tuple(mesh.shape), tuple(coordinate), tuple(tensor.placements))


@lru_cache(maxsize=4096)
def _indices(
    shape: tuple[int, ...], mesh: tuple[int, ...], coordinate: tuple[int, ...], placements: tuple[Placement, ...]
) -> tuple[Tensor, ...]:
    """For each dimension, the indices of the whole tensor that the rank at `coordinate` of the mesh has."""
    indices = [torch.arange(size, device="cpu") for size in shape]
    for ranks, number, placement in zip(mesh, coordinate, placements, strict=True):
        if placement.is_replicate():
            continue
        split: Any = placement  # Shard, or FSDP2's private kind of it for a tensor that is split along one dim twice
        dim = split.dim
        along = indices[dim].view(*[1] * dim, -1, *[1] * (len(shape) - 1 - dim))
        indices[dim] = split._split_tensor(along, ranks, with_padding=False, contiguous=False)[0][number].reshape(-1)
    return tuple(indices)


def reshard(model: nn.Module | None = None) -> None:
    """Make FSDP2's modules gather their weights anew: after a forward without backward, a root keeps those it has.

    Args:
        model: its modules are resharded; None for all modules of the process.
    """
    if "torch.distributed.fsdp" not in sys.modules:
        return
    from torch.distributed._composable_state import _module_state_mapping
    from torch.distributed.fsdp import FSDPModule

    for module in list(_module_state_mapping) if model is None else model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()
