"""Counts behind every metric that ranks examples by a score: exact with ties, O(n log n), integers until the end."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class RankCounts(NamedTuple):
    """How many positives and negatives score at least t, for every distinct score t from high to low.

    Attributes:
        true: (T,) int64, positives with score >= t; the last is the number P of positives.
        false: (T,) int64, negatives with score >= t; the last is the number of negatives.

    Example:
        >>> rank_counts(torch.tensor([3.0, 2.0]), torch.tensor([2.0, 1.0])).false  # thresholds 3, 2, 1
        tensor([0, 1, 2])
    """

    true: Tensor
    false: Tensor


def rank_counts(positive: Tensor, negative: Tensor) -> RankCounts:
    """Count both classes at every distinct threshold.

    Args:
        positive: (P,) scores of the positives, nan-free.
        negative: (M,) scores of the negatives, nan-free.

    Returns:
        The counts; equal scores share one threshold.

    Example:
        >>> rank_counts(torch.tensor([3.0, 2.0]), torch.tensor([2.0, 1.0])).true
        tensor([1, 2, 2])
    """
    scores, order = torch.cat([positive, negative]).sort(descending=True)
    true = (order < len(positive)).cumsum(0)
    last = torch.ones_like(order, dtype=torch.bool)  # the last example of each run of equal scores
    last[:-1] = scores[:-1] != scores[1:]
    at = last.nonzero()[:, 0]
    return RankCounts(true[at], at + 1 - true[at])


def area_under_roc(counts: RankCounts) -> float:
    r"""$P(s^+ > s^-) + \frac12 P(s^+ = s^-)$ for a random positive and negative, from integer sums.

    Args:
        counts: of at least one positive and one negative; their product must stay below 2^62.

    Returns:
        A value in [0, 1].

    Example:
        >>> area_under_roc(rank_counts(torch.tensor([3.0, 2.0]), torch.tensor([2.0, 1.0])))  # (1 + 1 + 1/2 + 1) / 4
        0.875
    """
    true, false = counts
    width = false.diff(prepend=false.new_zeros(1))
    height_twice = true + torch.cat([true.new_zeros(1), true[:-1]])
    return int((width * height_twice).sum()) / (2 * int(true[-1]) * int(false[-1]))


def average_precision(counts: RankCounts) -> float:
    r"""$\sum_t (R_t - R_{t-1}) P_t$ with recall R and precision P at every distinct threshold.

    The precision is not interpolated between thresholds: drawing straight lines in the precision-recall plane would be
    too optimistic.

    Args:
        counts: of at least one positive.

    Returns:
        A value in (0, 1].

    Example:
        >>> average_precision(rank_counts(torch.tensor([3.0, 1.0]), torch.tensor([2.0])))  # (1/1 + 2/3) / 2
        0.8333333333333333
    """
    true, false = counts
    gained = true.diff(prepend=true.new_zeros(1))
    return ((gained * (true / (true + false).double())).sum() / true[-1]).item()


def midranks(values: Tensor) -> Tensor:
    """The rank of each value, 1 for the smallest; equal values share the mean of their ranks.

    Args:
        values: (N,) nan-free.

    Returns:
        (N,) float64, exact.

    Example:
        >>> midranks(torch.tensor([10.0, 20.0, 20.0, 5.0]))
        tensor([2.0000, 3.5000, 3.5000, 1.0000], dtype=torch.float64)
    """
    _, group, size = values.unique(return_inverse=True, return_counts=True)
    last = size.cumsum(0)
    return (last - (size - 1) / 2.0).double()[group]
