"""A posterior's marginal standard deviations in a few numbers."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from varlearn.types import Posterior


class StdSummary(NamedTuple):
    """What sigma looks like over some weights."""

    count: int
    min: float
    mean: float
    max: float


class MarginalStd(NamedTuple):
    """The summary over all weights, and that of each tensor."""

    total: StdSummary
    tensors: dict[str, StdSummary]


def marginal_std(posterior: Posterior) -> MarginalStd:
    """Count, smallest, mean and largest marginal sigma, over all weights and per tensor (empty tensors left out).

    >>> import torch
    >>> from varlearn.posterior import DiagGaussian
    >>> q = DiagGaussian({"w": torch.zeros(2)}, {"w": torch.tensor([1.0, 4.0])}, ess=0.25)
    >>> marginal_std(q).total  # 1 / sqrt(0.25 * h)
    StdSummary(count=2, min=1.0, mean=1.5, max=2.0)
    """
    tensors = {name: _summary(std) for name, std in posterior.std.items() if std.numel()}
    count = sum(part.count for part in tensors.values())
    if not count:
        return MarginalStd(StdSummary(0, float("nan"), float("nan"), float("nan")), tensors)
    total = StdSummary(
        count,
        min(part.min for part in tensors.values()),
        sum(part.count * part.mean for part in tensors.values()) / count,
        max(part.max for part in tensors.values()),
    )
    return MarginalStd(total, tensors)


def _summary(std: Tensor) -> StdSummary:
    return StdSummary(std.numel(), std.min().item(), std.double().mean().item(), std.max().item())
