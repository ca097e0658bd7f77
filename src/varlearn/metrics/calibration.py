"""Calibration: does a prediction made with confidence p come true with frequency p?

Confidence is the largest probability of a row. Bins are half-open to the left, (lo, hi], and 0 belongs to the first.
Confidences are compared with the bin edges in float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from varlearn.metrics.classification import correct_per_example, max_log_prob
from varlearn.metrics.inputs import check_targets, checked_rows


class ReliabilityCurve(NamedTuple):
    """What a reliability diagram draws, one entry per bin.

    Attributes:
        edges: (B + 1,) float64 bin edges from 0 to 1.
        count: (B,) int64 examples per bin.
        confidence: (B,) float64 mean confidence, nan in an empty bin.
        accuracy: (B,) float64 share of right predictions, nan in an empty bin.

    Example:
        >>> curve = reliability_curve(torch.tensor([[0.9, 0.1], [0.9, 0.1]]).log(), torch.tensor([0, 1]), bins=2)
        >>> curve.count, curve.accuracy
        (tensor([0, 2]), tensor([   nan, 0.5000], dtype=torch.float64))
    """

    edges: Tensor
    count: Tensor
    confidence: Tensor
    accuracy: Tensor


def reliability_curve(log_probs: Tensor, targets: Tensor, bins: int = 20) -> ReliabilityCurve:
    """Mean confidence and accuracy in equal-width bins of the confidence.

    Args:
        log_probs: (N, C) log-probabilities.
        targets: (N,) class indices.
        bins: number of bins B on [0, 1].

    Returns:
        The curve; chunks of a data set combine with `merge_reliability`.

    Example:
        >>> curve = reliability_curve(torch.tensor([[0.7, 0.3], [0.9, 0.1]]).log(), torch.tensor([0, 0]), bins=2)
        >>> curve.confidence  # the bins (0, 0.5] and (0.5, 1]
        tensor([   nan, 0.8000], dtype=torch.float64)
    """
    _check_bins(bins)
    correct = correct_per_example(log_probs, targets)
    confidence = max_log_prob(log_probs).exp()
    edges = torch.linspace(0, 1, bins + 1, dtype=torch.float64, device=confidence.device)
    count, sum_confidence, sum_correct = _bin_sums(confidence, correct, edges[1:-1])
    return ReliabilityCurve(edges, count, sum_confidence / count, sum_correct / count)


def merge_reliability(curves: Sequence[ReliabilityCurve]) -> ReliabilityCurve:
    """The reliability curve of a data set from those of its chunks.

    Args:
        curves: curves with the same edges, at least one.

    Returns:
        Counts added, means weighted by the counts.

    Example:
        >>> part = reliability_curve(torch.tensor([[0.9, 0.1]]).log(), torch.tensor([0]), bins=2)
        >>> merge_reliability([part, part]).count
        tensor([0, 2])
    """
    if not curves:
        raise ValueError("curves is empty, must hold at least one curve; pass the curve of each chunk")
    edges = curves[0].edges
    if any(not torch.equal(edges, curve.edges) for curve in curves):
        raise ValueError(
            f"bins differ: {[len(c.count) for c in curves]}, must be equal; use the same bins for all chunks"
        )
    count = torch.stack([curve.count for curve in curves]).sum(0)

    def mean(values: list[Tensor]) -> Tensor:
        return torch.stack([v.nan_to_num(0.0) * c.count for v, c in zip(values, curves, strict=True)]).sum(0) / count

    return ReliabilityCurve(
        edges, count, mean([curve.confidence for curve in curves]), mean([curve.accuracy for curve in curves])
    )


def ece(log_probs: Tensor, targets: Tensor, bins: int = 20) -> float:
    r"""Expected calibration error, $\sum_b \frac{n_b}{N} |\mathrm{acc}_b - \mathrm{conf}_b|$, equal-width bins.

    Args:
        log_probs: (N, C) log-probabilities.
        targets: (N,) class indices.
        bins: number of equal-width bins on [0, 1]; the paper's number is 20.

    Returns:
        A value in [0, 1].

    Example:
        >>> round(ece(torch.tensor([[0.9, 0.1], [0.9, 0.1]]).log(), torch.tensor([0, 1])), 4)  # |1/2 - 0.9|
        0.4
    """
    return ece_from_curve(reliability_curve(log_probs, targets, bins))


def mce(log_probs: Tensor, targets: Tensor, bins: int = 20) -> float:
    r"""Maximum calibration error, $\max_b |\mathrm{acc}_b - \mathrm{conf}_b|$ over the bins that are not empty.

    Args:
        log_probs: (N, C) log-probabilities.
        targets: (N,) class indices.
        bins: number of equal-width bins on [0, 1].

    Returns:
        A value in [0, 1].

    Example:
        >>> round(mce(torch.tensor([[0.9, 0.1], [0.4, 0.6]]).log(), torch.tensor([0, 0])), 4)  # max(0.1, 0.6)
        0.6
    """
    return mce_from_curve(reliability_curve(log_probs, targets, bins))


def ece_from_curve(curve: ReliabilityCurve) -> float:
    """Expected calibration error of a curve, for instance one merged from chunks.

    Args:
        curve: at least one bin must not be empty.

    Returns:
        A value in [0, 1].

    Example:
        >>> part = reliability_curve(torch.tensor([[0.9, 0.1]]).log(), torch.tensor([0]))
        >>> round(ece_from_curve(merge_reliability([part, part])), 4)
        0.1
    """
    gap = (curve.accuracy - curve.confidence).abs().nan_to_num(0.0)
    return ((gap * curve.count).sum() / curve.count.sum()).item()


def mce_from_curve(curve: ReliabilityCurve) -> float:
    """Maximum calibration error of a curve, for instance one merged from chunks.

    Args:
        curve: at least one bin must not be empty.

    Returns:
        A value in [0, 1].

    Example:
        >>> part = reliability_curve(torch.tensor([[0.9, 0.1]]).log(), torch.tensor([1]))
        >>> round(mce_from_curve(part), 4)
        0.9
    """
    return (curve.accuracy - curve.confidence).abs().nan_to_num(0.0).max().item()


def adaptive_ece(log_probs: Tensor, targets: Tensor, bins: int = 20) -> float:
    r"""Expected calibration error with bins of equal mass: the b-th ends at the floor(bN/B)-th smallest confidence.

    Equal confidences share a bin, so the order of the examples does not matter; with ties a bin can stay empty.

    Args:
        log_probs: (N, C) log-probabilities.
        targets: (N,) class indices.
        bins: number of bins B.

    Returns:
        A value in [0, 1].

    Example:
        >>> probs = torch.tensor([[0.6, 0.4], [0.7, 0.3], [0.8, 0.2], [0.9, 0.1]])
        >>> round(adaptive_ece(probs.log(), torch.tensor([0, 1, 0, 0]), bins=2), 4)  # (|0.5 - 0.65| + |1 - 0.85|) / 2
        0.15
    """
    _check_bins(bins)
    correct = correct_per_example(log_probs, targets)
    confidence = max_log_prob(log_probs).exp()
    n = len(confidence)
    last = [b * n // bins for b in range(1, bins)]  # how many examples the first b bins hold
    upper = confidence.sort().values[[i - 1 for i in last if i > 0]]
    _, sum_confidence, sum_correct = _bin_sums(confidence, correct, upper)
    return ((sum_confidence - sum_correct).abs().sum() / n).item()


def classwise_ece(log_probs: Tensor, targets: Tensor, bins: int = 20) -> float:
    r"""Calibration error of all C probabilities, $\frac1C \sum_c \sum_b \frac{n_{bc}}{N} |\bar y_{bc} - \bar p_{bc}|$.

    Where `ece` looks at the winning class only, this asks of each class c whether probability p means frequency p.

    Args:
        log_probs: (N, C) log-probabilities.
        targets: (N,) class indices.
        bins: number of equal-width bins on [0, 1].

    Returns:
        A value in [0, 1], the mean over the C classes (also those that never occur in `targets`).

    Example:
        >>> round(classwise_ece(torch.tensor([[0.9, 0.1], [0.9, 0.1]]).log(), torch.tensor([0, 1])), 4)
        0.4
    """
    _check_bins(bins)
    check_targets(log_probs, targets)
    n, classes = log_probs.shape
    inner = torch.linspace(0, 1, bins + 1, dtype=torch.float64, device=log_probs.device)[1:-1]
    excess = torch.zeros(classes * bins, dtype=torch.float64, device=log_probs.device)  # sum of p - [y = c] per cell
    first_cell = torch.arange(classes, device=log_probs.device) * bins
    for rows, lp in checked_rows(log_probs):
        p = lp.exp()
        cell = torch.bucketize(p, inner) + first_cell  # (B, C)
        p.scatter_add_(-1, targets[rows, None].long(), p.new_full((len(p), 1), -1.0))
        excess += torch.bincount(cell.reshape(-1), p.reshape(-1), minlength=classes * bins)
    return (excess.abs().sum() / (n * classes)).item()


def _bin_sums(confidence: Tensor, correct: Tensor, inner_edges: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Count, sum of confidences and number of right predictions per bin, given the edges between the bins."""
    bins = len(inner_edges) + 1
    index = torch.bucketize(confidence, inner_edges)
    return (
        torch.bincount(index, minlength=bins),
        torch.bincount(index, confidence, minlength=bins),
        torch.bincount(index, correct.double(), minlength=bins),
    )


def _check_bins(bins: int) -> None:
    if bins < 1:
        raise ValueError(f"bins={bins} must be >= 1; the paper's number is 20")
