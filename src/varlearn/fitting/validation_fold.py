"""Hold out a part of the training data, where the user gave no validation data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, SequentialSampler, Subset

from varlearn.data.seeds import generator
from varlearn.fitting.array_inputs import as_tensors, is_array

SHARE = 0.1
_LEAST = 10  # examples of a fold; fewer say too little about the noise

Fold = tuple[Iterable[Any], Iterable[Any]]


def hold_out_fold(loader: Iterable[Any], seed: int, dtype: torch.dtype = torch.float32) -> Fold | None:
    """A tenth of the examples of a loader apart: (the loader of the others, the batches of the tenth).

    Args:
        loader: a DataLoader over a data set with a length and PyTorch's own samplers, or a list of pairs of tensors or
            arrays.
        seed: decides which examples.
        dtype: of the tensors that floating-point arrays become.

    Returns:
        None where the loader is of another form, or has too few examples.

    >>> rest, fold = hold_out_fold([(torch.zeros(100, 1), torch.arange(100))], seed=0)
    >>> len(rest[0][1]), len(fold[0][1])
    (90, 10)
    """
    if isinstance(loader, DataLoader):
        return _of_loader(loader, seed)
    if isinstance(loader, Sequence) and all(map(_is_pair_of_arrays, loader)):
        return _of_pairs([as_tensors(pair, dtype) for pair in loader], seed)
    return None


def _of_loader(loader: DataLoader[Any], seed: int) -> Fold | None:
    dataset = loader.dataset
    plain = type(loader.batch_sampler) is BatchSampler and type(loader.sampler) in (RandomSampler, SequentialSampler)
    if isinstance(dataset, IterableDataset) or not isinstance(dataset, Sized) or not plain:
        return None
    chosen = _chosen(len(dataset), seed, loader.batch_size)
    if chosen is None:
        return None
    rest, fold = ([int(index) for index in mask.nonzero()] for mask in (~chosen, chosen))
    shared = {
        name: getattr(loader, name)
        for name in (
            "batch_size",
            "num_workers",
            "collate_fn",
            "pin_memory",
            "worker_init_fn",
            "multiprocessing_context",
        )
    }
    shuffle = isinstance(loader.sampler, RandomSampler)
    train = DataLoader(
        Subset(dataset, rest), shuffle=shuffle, drop_last=loader.drop_last, generator=loader.generator, **shared
    )
    return train, DataLoader(Subset(dataset, fold), shuffle=False, **shared)


def _of_pairs(pairs: Sequence[Any], seed: int) -> Fold | None:
    chosen = _chosen(sum(len(targets) for _, targets in pairs), seed)
    if chosen is None:
        return None
    rest, fold = [], []
    for (inputs, targets), mask in zip(pairs, chosen.split([len(targets) for _, targets in pairs]), strict=True):
        for part, kept in ((rest, ~mask), (fold, mask)):
            if kept.any():
                part.append((inputs[kept.to(inputs.device)], targets[kept.to(targets.device)]))
    return rest, fold


def _chosen(examples: int, seed: int, batch_size: int | None = None) -> Tensor | None:
    """Which examples are held out, a random tenth. The others leave no last batch of one, which BatchNorm refuses."""
    count = round(SHARE * examples)
    if batch_size is not None and batch_size > 1 and (examples - count) % batch_size == 1:
        count += 1
    if count < _LEAST:
        return None
    mask = torch.zeros(examples, dtype=torch.bool)
    mask[torch.randperm(examples, generator=generator(seed, "fold"))[:count]] = True
    return mask


def _is_pair_of_arrays(batch: Any) -> bool:
    return isinstance(batch, (tuple, list)) and len(batch) == 2 and all(map(is_array, batch))
