"""Collect what was computed batch by batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")


class Batches(dict[int, Tensor]):
    """One tensor per batch, by the number of the batch.

    >>> parts = Batches()
    >>> parts[0], parts[1] = torch.tensor([1.0]), torch.tensor([2.0])
    >>> parts.joined()
    tensor([1., 2.])
    """

    def joined(self) -> Tensor:
        """All batches in their order, along the first dimension, on the CPU."""
        return torch.cat([self[number].cpu() for number in sorted(self)])


class SampleBatches:
    """Every sample of every batch, on the CPU.

    >>> parts = SampleBatches()
    >>> parts.add(0, torch.ones(2, 3))
    >>> parts.add(0, torch.ones(1, 3))
    >>> parts.add(1, torch.ones(3, 4))
    >>> parts.joined().shape
    torch.Size([3, 7])
    """

    def __init__(self) -> None:
        self._parts: dict[int, list[Tensor]] = {}

    def add(self, batch: int, values: Tensor) -> None:
        """Append samples of a batch, shape (S, B, ...)."""
        self._parts.setdefault(batch, []).append(values.cpu())

    def joined(self) -> Tensor:
        """All samples of all batches, shape (S, N, ...)."""
        return torch.cat([torch.cat(self._parts[batch]) for batch in sorted(self._parts)], dim=1)


def gather_ranks(predictions: T, size: int | None = None) -> T:
    """Put together what several ranks predicted for their shares of a data set; every rank gets all of it.

    With the same posterior and seed on every rank, the samples are the same, and so is the result of one process. Only
    `nll_by_samples` is None if examples are dropped, because they are in its mean.

    Args:
        predictions: of this rank, for the examples rank, rank + J, rank + 2 J, ... of J ranks: the share that
            `torch.utils.data.DistributedSampler(data, shuffle=False)` hands out.
        size: number of examples, to drop those that the sampler repeats to make the shares equal.

    >>> from varlearn.prediction import Predictions
    >>> p = Predictions(torch.zeros(3, 1), None, torch.zeros(3), torch.ones(1))
    >>> gather_ranks(p, size=2).log_probs.shape  # one process has everything
    torch.Size([2, 1])
    """
    if not dataclasses.is_dataclass(predictions) or isinstance(predictions, type):
        raise TypeError(f"a {type(predictions).__name__} has no examples to put together; pass what predict returned")
    ranks: list[Any] = [predictions]
    if dist.is_available() and dist.is_initialized():
        ranks = ranks * dist.get_world_size()
        dist.all_gather_object(ranks, predictions)
    examples = torch.cat([_examples(part) * len(ranks) + rank for rank, part in enumerate(ranks)])
    order = examples.argsort(stable=True)
    if not hasattr(predictions, "sequences") and not torch.equal(examples[order], torch.arange(len(examples))):
        sizes = [len(_examples(part)) for part in ranks]
        raise ValueError(f"shares of {sizes} examples leave gaps; use DistributedSampler(data, shuffle=False)")
    if size is not None:
        order = order[examples[order] < size]
    joined = {
        field.name: _joined(field.name, [getattr(part, field.name) for part in ranks], order)
        for field in dataclasses.fields(predictions)
        if field.name != "nll_by_samples"
    }
    dropped = len(order) < len(examples)
    if hasattr(predictions, "nll_by_samples"):
        joined["nll_by_samples"] = None if dropped else _mean_over_ranks(ranks)
    if "sequences" in joined:
        joined["sequences"] = examples[order]
    return dataclasses.replace(predictions, **joined)


def _examples(predictions: Any) -> Tensor:
    """The number of each row's example within its share: a row is an example, or a token of one."""
    if hasattr(predictions, "sequences"):
        return predictions.sequences.long()
    rows = predictions.log_probs if hasattr(predictions, "log_probs") else predictions.mean
    return torch.arange(len(rows))


def _joined(name: str, parts: list[Any], order: Tensor) -> Any:
    if not isinstance(parts[0], Tensor) or name == "sample_weights":
        return parts[0]
    dim = 1 if name.startswith("sample_") else 0
    return torch.cat(parts, dim).index_select(dim, order)


def _mean_over_ranks(ranks: list[Any]) -> Tensor | None:
    """`nll_by_samples` of all ranks, each weighted by its number of rows."""
    curves = [part.nll_by_samples for part in ranks]
    if any(curve is None for curve in curves):
        return None
    rows = [len(_examples(part)) for part in ranks]
    return torch.stack([count * curve for count, curve in zip(rows, curves, strict=True)]).sum(0) / sum(rows)


def joined_targets(targets: Sequence[Tensor | None]) -> Tensor | None:
    """The targets of all batches, or None where some have none.

    >>> joined_targets([torch.tensor([1]), torch.tensor([2, 3])])
    tensor([1, 2, 3])
    """
    known = [value for value in targets if value is not None]
    return torch.cat(known) if known and len(known) == len(targets) else None


def as_floats(outputs: Any) -> Tensor:
    """What a model returned, as a tensor in float32 or better.

    >>> as_floats(torch.ones(1, dtype=torch.bfloat16))
    tensor([1.])
    """
    if not isinstance(outputs, Tensor):
        raise TypeError(
            f"the model returned a {type(outputs).__name__}; it must return a tensor or an object with `logits`, "
            "wrap it in a module that does"
        )
    return outputs.to(torch.promote_types(outputs.dtype, torch.float32))


class NotANumberError(ValueError):
    """A posterior sample whose predictions are NaN."""


def check_numbers(values: Tensor, batch: int) -> None:
    """Refuse NaN, which one bad sample would spread over the whole average.

    >>> check_numbers(torch.tensor([float("nan")]), batch=3)
    Traceback (most recent call last):
    ...
    varlearn.prediction.gather.NotANumberError: batch 3 gives NaN under a posterior sample, and predictions must be ...
    """
    if values.isnan().any():
        raise NotANumberError(
            f"batch {batch} gives NaN under a posterior sample, and predictions must be numbers; check the inputs "
            "and the model at its mean. If both are well, the posterior is too wide: use posterior.tempered(T), T < 1"
        )
