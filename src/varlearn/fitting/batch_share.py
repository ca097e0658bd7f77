"""One process's share of the batches, where several train together."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset

from varlearn.fitting.own_batches import OwnBatches
from varlearn.train.processes import Processes

_SAME_LOADER = (  # what the loader of a share takes over
    "num_workers",
    "collate_fn",
    "pin_memory",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "generator",
    "prefetch_factor",
    "persistent_workers",
)


def share_of(batches: OwnBatches, processes: Processes) -> OwnBatches:
    """The batches r, r + J, r + 2 J, ... of each pass for process r of J; fewer than J batches at the end are dropped.

    All processes must have the same loader. A DataLoader over an indexed data set reads the examples of its share
    alone; any other iterable is read whole in every process.

    Args:
        batches: of the whole data, in the same order in every process.
        processes: this process among those that train together.

    >>> data = [(torch.full((1, 1), float(k)), torch.tensor([k])) for k in range(5)]
    >>> second = share_of_rank(OwnBatches(data, "train_loader"), 1, 2)
    >>> len(second), [targets.item() for _, targets in second.epoch(0)]
    (2, [1, 3])
    """
    if processes.world == 1:
        return batches
    sampler = getattr(batches.loader, "sampler", None)
    if isinstance(sampler, DistributedSampler):
        raise ValueError(
            f"{batches.name} has a DistributedSampler, and fit divides the batches among the processes itself; pass "
            "the same DataLoader without it in every process"
        )
    _check_equal(batches, processes)
    return share_of_rank(batches, processes.rank, processes.world)


def share_of_rank(batches: OwnBatches, rank: int, world: int) -> OwnBatches:
    """The share of process `rank` of `world`, see `share_of`."""
    if len(batches) < world:
        raise ValueError(
            f"{batches.name} gives {len(batches)} batches for {world} processes, and each needs at least one; use "
            "smaller batches or fewer processes"
        )
    return batches.over(_divided(batches.loader, len(batches), rank, world))


def _check_equal(batches: OwnBatches, processes: Processes) -> None:
    """Refuse loaders that differ between processes: in the number of batches, or in the first one."""
    checksum = 0
    for tensor in _tensors(next(iter(batches.epoch(0)))):
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        checksum = zlib.crc32(flat.view(torch.uint8).numpy().tobytes(), checksum)
    mine = torch.zeros(processes.world, 2, dtype=torch.float64)
    mine[processes.rank] = torch.tensor([len(batches), checksum], dtype=torch.float64)
    everyone = processes.total(mine)
    if not bool((everyone == everyone[0]).all()):
        raise ValueError(
            f"{batches.name} gives other batches in other processes, and fit divides the batches itself; pass the same "
            "data in every process, undivided and in an order that PyTorch's seed decides"
        )


def _tensors(batch: Any) -> Iterator[Tensor]:
    """The tensors of a batch: tuples, lists and mappings are looked into."""
    if isinstance(batch, Tensor):
        yield batch
    elif isinstance(batch, (Mapping, tuple, list)):
        for part in batch.values() if isinstance(batch, Mapping) else batch:
            yield from _tensors(part)


def _divided(loader: Any, count: int, rank: int, world: int) -> Iterable[Any]:
    if isinstance(loader, DataLoader) and not isinstance(loader.dataset, IterableDataset):
        indices = loader.batch_sampler or loader.sampler  # without a batch sampler each index is a batch
        part: Iterable[Any] = EveryNth(indices, count, rank, world)
        same = {name: getattr(loader, name) for name in _SAME_LOADER}
        by = {"batch_size": None, "sampler": part} if loader.batch_sampler is None else {"batch_sampler": part}
        return DataLoader(loader.dataset, **by, **same)
    return EveryNth(loader, count, rank, world)


class EveryNth:
    """Items r, r + J, r + 2 J, ... of an iterable, equally many for every r.

    Args:
        items: read anew in each pass.
        count: how many there are.
        rank: r, from 0.
        world: J.

    >>> list(EveryNth("abcde", 5, 1, 2)), len(EveryNth("abcde", 5, 1, 2))
    (['b', 'd'], 2)
    """

    def __init__(self, items: Iterable[Any], count: int, rank: int, world: int) -> None:
        self.items, self._count, self._rank, self._world = items, count, rank, world

    def __len__(self) -> int:
        return self._count // self._world

    def __iter__(self) -> Iterator[Any]:
        return islice(self.items, self._rank, len(self) * self._world, self._world)
