"""What GLUE reports besides accuracy: F1 for MRPC and QQP, Matthews for CoLA, Pearson and Spearman for STS-B."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from varlearn.metrics.inputs import check_labels, check_same_length, check_vector
from varlearn.metrics.ranking import midranks


def f1(predictions: Tensor, targets: Tensor, positive: int = 1) -> float:
    """Harmonic mean of precision and recall of one class, 2 TP / (2 TP + FP + FN).

    Args:
        predictions: (N,) integer labels.
        targets: (N,) integer labels.
        positive: the class.

    Returns:
        A value in [0, 1]; 0 where the class is neither predicted nor there, by convention.

    Example:
        >>> f1(torch.tensor([1, 1, 0, 0]), torch.tensor([1, 0, 1, 0]))  # 2 / (2 + 1 + 1)
        0.5
    """
    check_labels(predictions, "predictions")
    check_labels(targets, "targets")
    check_same_length(predictions=predictions, targets=targets)
    predicted, observed = predictions == positive, targets == positive
    both, either = int((predicted & observed).sum()), int(predicted.sum()) + int(observed.sum())
    return 2 * both / either if either else 0.0


def matthews_correlation(predictions: Tensor, targets: Tensor) -> float:
    r"""Correlation of predicted and true classes, for any number of classes, from integer counts.

    With c right predictions of N, $t_k$ targets and $p_k$ predictions of class k:
    $(cN - \sum_k p_k t_k) / \sqrt{(N^2 - \sum_k p_k^2)(N^2 - \sum_k t_k^2)}$; for two classes the usual
    $(TP \cdot TN - FP \cdot FN) / \sqrt{\ldots}$.

    Args:
        predictions: (N,) integer labels.
        targets: (N,) integer labels.

    Returns:
        A value in [-1, 1]; 0 where the predictions or the targets are all of one class, by convention.

    Example:
        >>> matthews_correlation(torch.tensor([1, 1, 0, 0]), torch.tensor([1, 0, 0, 0]))  # (1*2 - 1*0) / sqrt(12)
        0.5773502691896258
    """
    check_labels(predictions, "predictions")
    check_labels(targets, "targets")
    check_same_length(predictions=predictions, targets=targets)
    n = len(targets)
    labels, index = torch.cat([predictions, targets]).unique(return_inverse=True)
    predicted = torch.bincount(index[:n], minlength=len(labels)).tolist()
    observed = torch.bincount(index[n:], minlength=len(labels)).tolist()
    right = int((predictions == targets).sum())
    covariance = right * n - sum(p * t for p, t in zip(predicted, observed, strict=True))
    spread = (n * n - sum(p * p for p in predicted)) * (n * n - sum(t * t for t in observed))
    return covariance / math.sqrt(spread) if spread else 0.0


def pearson(predictions: Tensor, targets: Tensor) -> float:
    """Covariance over the product of the standard deviations.

    Args:
        predictions: (N,) real scores.
        targets: (N,) real scores.

    Returns:
        A value in [-1, 1]; nan where either is constant.

    Example:
        >>> round(pearson(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 3.0, 2.0])), 12)
        0.5
    """
    predictions, targets = check_vector(predictions, "predictions"), check_vector(targets, "targets")
    check_same_length(predictions=predictions, targets=targets)
    if bool((predictions == predictions[0]).all()) or bool((targets == targets[0]).all()):
        return float("nan")
    a, b = (x.double() - x.double().mean() for x in (predictions, targets))
    spread = (a.norm() * b.norm()).item()
    return max(-1.0, min(1.0, (a @ b).item() / spread)) if spread else float("nan")


def spearman(predictions: Tensor, targets: Tensor) -> float:
    """Pearson correlation of the ranks; equal values share the mean of their ranks.

    Args:
        predictions: (N,) real scores.
        targets: (N,) real scores.

    Returns:
        A value in [-1, 1]; nan where either is constant, as its ranks have no spread.

    Example:
        >>> spearman(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 3.0, 2.0]))  # 1 - 6 * 2 / (3 * 8)
        0.5
    """
    predictions, targets = check_vector(predictions, "predictions"), check_vector(targets, "targets")
    check_same_length(predictions=predictions, targets=targets)
    # twice the deviation of a rank from the mean rank (n + 1) / 2 is an integer, so constants are exactly 0
    a, b = (2 * midranks(x) - (len(targets) + 1) for x in (predictions, targets))
    spread = math.sqrt((a @ a).item() * (b @ b).item())
    return max(-1.0, min(1.0, (a @ b).item() / spread)) if spread else float("nan")
