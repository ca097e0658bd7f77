"""Between a loader's batches and a model's call: split, move, call, and notice when the order changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DistributedSampler, RandomSampler, SubsetRandomSampler, WeightedRandomSampler

_RANDOM = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)

Unpack = Callable[[Any], tuple[Any, Any]]
"""From a batch to (inputs, targets), where targets are a tensor, something like one, or None."""


def split_batch(batch: Any) -> tuple[Any, Any]:
    """(inputs, targets) of a batch: a pair, a mapping with "labels", or inputs alone.

    >>> split_batch({"input_ids": torch.zeros(1), "labels": torch.ones(1)})
    ({'input_ids': tensor([0.])}, tensor([1.]))
    """
    if isinstance(batch, Mapping):
        inputs = {name: value for name, value in batch.items() if name != "labels"}
        return inputs, batch.get("labels")
    if isinstance(batch, (tuple, list)):
        if len(batch) == 1:
            return batch[0], None
        if len(batch) == 2:
            return batch[0], batch[1]
        raise ValueError(
            f"a batch of {len(batch)} parts must be (inputs, targets); pass unpack=lambda batch: (inputs, targets)"
        )
    return batch, None


def move(inputs: Any, device: torch.device) -> Any:
    """Tensors in nested tuples, lists and mappings to a device.

    >>> move({"x": (torch.ones(1), "kept")}, torch.device("cpu"))
    {'x': (tensor([1.]), 'kept')}
    """
    if isinstance(inputs, Tensor):
        return inputs.to(device, non_blocking=True)
    if isinstance(inputs, Mapping):
        return {name: move(value, device) for name, value in inputs.items()}
    if isinstance(inputs, (tuple, list)):
        return tuple(move(value, device) for value in inputs)
    return inputs


def arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments of the model's call: a tuple is several inputs, a mapping named ones.

    >>> arguments({"x": 1}), arguments((1, 2)), arguments(3)
    (((), {'x': 1}), ((1, 2), {}), ((3,), {}))
    """
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if isinstance(inputs, (tuple, list)):
        return tuple(inputs), {}
    return (inputs,), {}


def outputs_of(result: Any) -> Any:
    """What a model returned, or its `logits` where the result has them (Hugging Face models).

    >>> outputs_of({"logits": 1, "loss": 2})
    1
    """
    if isinstance(result, Mapping) and "logits" in result:
        return result["logits"]
    return getattr(result, "logits", result)


def device_of(model: nn.Module) -> torch.device:
    """Where the model's first tensor is.

    >>> device_of(nn.Linear(1, 1))
    device(type='cpu')
    """
    for tensor in (*model.parameters(), *model.buffers()):
        return tensor.device
    return torch.device("cpu")


def is_shuffled(loader: Any) -> bool:
    """Whether the order of a `DataLoader` is known to be random, as far as its samplers tell.

    >>> from torch.utils.data import BatchSampler, DataLoader
    >>> is_shuffled(DataLoader([1, 2])), is_shuffled(DataLoader([1, 2], shuffle=True))
    (False, True)
    >>> is_shuffled(DataLoader([1, 2], batch_sampler=BatchSampler(RandomSampler([1, 2]), 2, False)))
    True
    """
    if isinstance(loader, _RANDOM) or (isinstance(loader, DistributedSampler) and loader.shuffle):
        return True
    inner = (getattr(loader, name, None) for name in ("sampler", "batch_sampler"))
    return any(is_shuffled(one) for one in inner if one is not None and one is not loader)


def check_repeatable(loader: Iterable[Any], passes: int) -> None:
    """Refuse a loader that cannot be walked several times in one order.

    >>> check_repeatable(iter([1, 2]), passes=2)
    Traceback (most recent call last):
    ...
    ValueError: the loader is an iterator, which ends after one of 2 passes; pass a list or a DataLoader
    """
    if passes == 1:
        return
    if isinstance(loader, Iterator):
        raise ValueError(
            f"the loader is an iterator, which ends after one of {passes} passes; pass a list or a DataLoader"
        )
    if is_shuffled(loader):
        raise ValueError(
            f"the loader shuffles, so its {passes} passes would mix up the examples; make it with shuffle=False"
        )


class OrderWatch:
    """Remembers the first pass over the loader and refuses a later one that differs.

    Averages are kept by position, so a loader in another order would silently mix examples. Targets tell; without them
    the sum over each example's input does.

    >>> watch = OrderWatch()
    >>> watch.see(0, None, torch.tensor([1, 2]))
    >>> watch.end_pass()
    >>> watch.see(0, None, torch.tensor([2, 1]))
    Traceback (most recent call last):
    ...
    ValueError: batch 0 differs from the first pass over the loader; every pass must give the same examples in the \
same order, use shuffle=False and no random sampling
    """

    def __init__(self) -> None:
        self._marks: list[Tensor | None] = []
        self._seen = 0
        self._first = True

    def see(self, batch: int, inputs: Any, targets: Tensor | None) -> None:
        """Record batch number `batch` in the first pass, compare it in the others."""
        mark = targets if targets is not None else _fingerprint(inputs)
        if self._first:
            self._marks.append(mark)
        elif batch >= len(self._marks) or not _same(self._marks[batch], mark):
            raise ValueError(
                f"batch {batch} differs from the first pass over the loader; every pass must give the same examples in "
                "the same order, use shuffle=False and no random sampling"
            )
        self._seen = batch + 1

    def end_pass(self) -> None:
        """Check that the pass was not shorter than the first one."""
        if self._seen == 0:
            raise ValueError("the loader gave no batch; it must give at least one in every pass")
        if self._seen < len(self._marks):
            raise ValueError(
                f"the loader gave {self._seen} batches after {len(self._marks)} in the first pass; "
                "every pass must give the same examples, pass a list or a DataLoader"
            )
        self._seen, self._first = 0, False


def _fingerprint(inputs: Any) -> Tensor | None:
    """One number per example from the first tensor of the inputs."""
    if isinstance(inputs, Mapping):
        inputs = tuple(inputs.values())
    if isinstance(inputs, (tuple, list)):
        inputs = next((value for value in inputs if isinstance(value, Tensor)), None)
    if not isinstance(inputs, Tensor) or inputs.dim() == 0:
        return None
    return inputs.flatten(1).sum(1, dtype=torch.float64) if inputs.dim() > 1 else inputs


def _same(first: Tensor | None, second: Tensor | None) -> bool:
    if first is None or second is None:
        return first is second
    if torch.equal(first, second):
        return True
    if first.shape != second.shape:
        return False
    return bool(((first == second) | ((first != first) & (second != second))).all())  # NaN equals NaN here
