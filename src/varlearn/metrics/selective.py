"""Selective prediction: does the confidence know which predictions are wrong?"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from varlearn.metrics.classification import correct_per_example, max_log_prob
from varlearn.metrics.inputs import check_finite, check_same_length, check_vector
from varlearn.metrics.ranking import area_under_roc, rank_counts


class RiskCoverage(NamedTuple):
    """The risk when only the most confident share of the examples is answered.

    Attributes:
        coverage: (N,) float64, k / N for k = 1 .. N.
        risk: (N,) float64, mean loss of the k most confident examples.

    Example:
        >>> risk_coverage(torch.tensor([0.9, 0.6]), torch.tensor([0.0, 1.0])).coverage
        tensor([0.5000, 1.0000], dtype=torch.float64)
    """

    coverage: Tensor
    risk: Tensor


def risk_coverage(confidence: Tensor, loss: Tensor) -> RiskCoverage:
    r"""Mean loss of the k most confident examples, for every k.

    Examples of equal confidence enter in random order, and the risk is its expectation over that order, so the curve
    does not depend on how the rows were sorted.

    Args:
        confidence: (N,) any score, higher = more confident.
        loss: (N,) any finite loss; 0/1 errors give the usual curve, `loss = ~correct`.

    Returns:
        The curve.

    Example:
        >>> risk_coverage(torch.tensor([0.9, 0.6, 0.6]), torch.tensor([0.0, 1.0, 0.0])).risk  # 0/1, 0.5/2, 1/3
        tensor([0.0000, 0.2500, 0.3333], dtype=torch.float64)
    """
    confidence = check_vector(confidence, "confidence")
    loss = check_finite(loss.double() if loss.dtype == torch.bool else loss, "loss")
    check_same_length(confidence=confidence, loss=loss)
    values, group, size = confidence.neg().unique(return_inverse=True, return_counts=True)
    group_mean = torch.bincount(group, loss, minlength=len(values)) / size
    k = torch.arange(1, len(loss) + 1, dtype=torch.float64, device=loss.device)
    risk = group_mean.repeat_interleave(size).cumsum(0) / k
    return RiskCoverage(k / len(loss), risk)


def aurc(log_probs: Tensor, targets: Tensor, confidence: Tensor | None = None) -> float:
    r"""Area under the risk-coverage curve of the 0/1 error, $\frac1N \sum_k \mathrm{risk}(k/N)$.

    For another loss, average the curve itself: `risk_coverage(confidence, loss).risk.mean()`.

    Args:
        log_probs: (N, C) log-probabilities.
        targets: (N,) class indices.
        confidence: (N,) score to rank by, higher = more confident; the largest probability by default.

    Returns:
        A value in [0, 1], lower is better; the error rate itself where the confidence is constant.

    Example:
        >>> log_probs = torch.tensor([[0.9, 0.1], [0.6, 0.4]]).log()
        >>> aurc(log_probs, torch.tensor([0, 1]))  # (0/1 + 1/2) / 2
        0.25
    """
    correct, confidence = _correct_and_confidence(log_probs, targets, confidence)
    return risk_coverage(confidence, ~correct).risk.mean().item()


def misclassification_auroc(log_probs: Tensor, targets: Tensor, confidence: Tensor | None = None) -> float:
    """AUROC of telling right predictions from wrong ones by the confidence: the "AUROC" of the paper's RNN table.

    Args:
        log_probs: (N, C) log-probabilities.
        targets: (N,) class indices.
        confidence: (N,) score to rank by, higher = more confident; the largest probability by default.

    Returns:
        A share in [0, 1]; nan where all predictions are right or all are wrong, as there is nothing to tell apart.

    Example:
        >>> log_probs = torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.3, 0.7]]).log()
        >>> misclassification_auroc(log_probs, torch.tensor([0, 1, 0]))  # right: 0.9; wrong: 0.6, 0.7
        1.0
    """
    correct, confidence = _correct_and_confidence(log_probs, targets, confidence)
    if bool(correct.all()) or not bool(correct.any()):
        return float("nan")
    return area_under_roc(rank_counts(confidence[correct], confidence[~correct]))


def _correct_and_confidence(log_probs: Tensor, targets: Tensor, confidence: Tensor | None) -> tuple[Tensor, Tensor]:
    correct = correct_per_example(log_probs, targets)
    confidence = max_log_prob(log_probs) if confidence is None else check_vector(confidence, "confidence")
    check_same_length(confidence=confidence, targets=targets)
    return correct, confidence
