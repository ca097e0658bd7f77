"""Confidence interval of any metric by resampling the examples."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor


class BootstrapInterval(NamedTuple):
    """A metric with its percentile interval.

    Attributes:
        value: the metric of the data as given.
        low: lower end of the interval.
        high: upper end of the interval.
        std: standard deviation over the resamples, the bootstrap standard error.

    Example:
        >>> bootstrap_interval(lambda x: x.mean().item(), torch.ones(5), resamples=10)
        BootstrapInterval(value=1.0, low=1.0, high=1.0, std=0.0)
    """

    value: float
    low: float
    high: float
    std: float


def bootstrap_interval(
    metric: Callable[..., float],
    *data: Tensor,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    paired: bool = True,
) -> BootstrapInterval:
    """Percentile bootstrap: the metric of `resamples` data sets drawn from the rows with replacement.

    Args:
        metric: called as metric(*data); any function of this package, or one with its options bound.
        data: tensors whose dimension 0 is the example; transpose matrices (S, N) of samples inside `metric`.
        resamples: number of resampled data sets, >= 2.
        level: probability the interval is meant to cover, in (0, 1).
        seed: decides the resamples; the global random state is neither read nor changed.
        paired: draw the same rows from every tensor (log-probabilities and their targets). False draws from each on
            its own: in-domain and out-of-domain scores, which may differ in number.

    Returns:
        The value with its interval. The ends are resampled values themselves (the one below and the one above the
        quantile), so an infinite metric gives an infinite end rather than nan.

    Example:
        >>> from varlearn.metrics import auroc
        >>> bootstrap_interval(
        ...     auroc, torch.tensor([3.0, 4.0]), torch.tensor([1.0, 2.0, 0.0]), paired=False, resamples=20
        ... )
        BootstrapInterval(value=1.0, low=1.0, high=1.0, std=0.0)
    """
    lengths = [len(tensor) for tensor in data]
    if not data or min(lengths) == 0:
        raise ValueError(f"data has lengths {lengths}, must be at least one non-empty tensor; pass the metric's inputs")
    if paired and len(set(lengths)) > 1:
        raise ValueError(
            f"data has lengths {lengths}, must be equal; use paired=False for independent sets of examples"
        )
    if resamples < 2:
        raise ValueError(f"resamples={resamples} must be >= 2; 1000 is a common choice")
    if not 0 < level < 1:
        raise ValueError(f"level={level} must be in (0, 1); 0.95 is the usual value")
    value = float(metric(*data))
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.empty(resamples, dtype=torch.float64)
    for i in range(resamples):
        if paired:
            indices = [torch.randint(lengths[0], (lengths[0],), generator=generator)] * len(data)
        else:
            indices = [torch.randint(n, (n,), generator=generator) for n in lengths]
        drawn[i] = float(metric(*(x[index.to(x.device)] for x, index in zip(data, indices, strict=True))))
        if math.isnan(drawn[i]):
            raise ValueError(
                f"resample {i} gave nan, must be a number; the metric is undefined on some resamples "
                "(one class only, a constant): use more examples"
            )
    tail = torch.tensor((1 - level) / 2, dtype=torch.float64)
    low = drawn.quantile(tail, interpolation="lower").item()
    high = drawn.quantile(1 - tail, interpolation="higher").item()
    std = drawn.std().item() if bool(drawn.isfinite().all()) else float("inf")
    return BootstrapInterval(value, low, high, std)
