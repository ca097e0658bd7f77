"""A loader's batches in parts of few examples, each with its targets and ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from varlearn.prediction.loader_batches import split_batch
from varlearn.sensitivities.input_checks import check_order


class Part(NamedTuple):
    """Some examples of one batch."""

    inputs: Any
    targets: Tensor
    ids: Tensor


def parts(loader: Iterable[Any], chunk: Callable[[Any], int]) -> Iterator[Part]:
    """The batches of a loader in parts, with their ids or numbers.

    Args:
        loader: gives (inputs, targets), mappings with "labels", or (inputs, targets, ids).
        chunk: from the inputs of a batch to the examples in a part of it.

    >>> [part.ids.tolist() for part in parts([(torch.zeros(3, 1), torch.zeros(3))], lambda inputs: 2)]
    [[0, 1], [2]]
    """
    seen = 0
    for batch in loader:
        has_ids = isinstance(batch, (tuple, list)) and len(batch) == 3
        inputs, targets = split_batch(batch[:2] if has_ids else batch)
        if targets is None:
            raise ValueError("a batch without targets has no error e; the loader must give (inputs, targets), add them")
        if not has_ids:
            check_order(loader)
        targets = torch.as_tensor(targets)
        numbers = torch.as_tensor(batch[2]) if has_ids else torch.arange(seen, seen + len(targets))
        if numbers.shape != (len(targets),) or numbers.is_floating_point():
            raise ValueError(
                f"ids of shape {tuple(numbers.shape)} and {numbers.dtype} in a batch of {len(targets)} examples must "
                "be one whole number for each"
            )
        _check_rows(inputs, targets)
        seen += len(targets)
        if not len(targets):
            continue
        size = chunk(inputs)
        for start in range(0, len(targets), size):
            span = slice(start, start + size)
            yield Part(
                tree_map(lambda x, span=span: x[span] if isinstance(x, Tensor) else x, inputs),
                targets[span],
                numbers[span],
            )


def given_ids(ids: Sequence[int] | Tensor, count: int) -> Tensor:
    """The caller's ids as a tensor, as many as there are examples.

    >>> given_ids(["a"], 1)
    Traceback (most recent call last):
    ...
    ValueError: ids=['a'] must be whole numbers; number the examples and keep their names beside
    """
    try:
        numbers = torch.as_tensor(ids)
    except (ValueError, TypeError, RuntimeError):
        numbers = torch.empty(0)
    if numbers.is_floating_point() or numbers.dtype == torch.bool:
        raise ValueError(f"ids={ids[:3]} must be whole numbers; number the examples and keep their names beside")
    if numbers.shape != (count,):
        raise ValueError(f"{len(numbers)} ids must be as many as the loader's {count} examples; give one for each")
    return numbers


def _check_rows(inputs: Any, targets: Tensor) -> None:
    for leaf in tree_leaves(inputs):
        if isinstance(leaf, Tensor) and leaf.shape[:1] != targets.shape[:1]:
            raise ValueError(
                f"inputs of shape {tuple(leaf.shape)} with targets of shape {tuple(targets.shape)}: the first "
                "dimension of both must be the examples of the batch"
            )
