"""The scores of predictions: what `metrics.json` holds of each."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from varlearn import metrics
from varlearn.prediction.classifier import Predictions
from varlearn.prediction.language_model import TokenPredictions
from varlearn.prediction.regressor import RegressionPredictions

ECE_BINS = 20  # the paper's number
TOP = 5  # the paper's second accuracy
AnyPredictions = Predictions | RegressionPredictions | TokenPredictions


def score(found: AnyPredictions) -> dict[str, Any]:
    """The scores of predictions with targets; shares and nats, not percent.

    >>> import torch
    >>> halves = torch.tensor([0.5, 0.5]).log()
    >>> score(TokenPredictions(halves, torch.zeros(2), torch.zeros(2), torch.ones(1)))["tokens"]
    2
    """
    targets = found.targets
    assert targets is not None
    if isinstance(found, TokenPredictions):
        nll = metrics.nll_per_token(found.log_probs)
        return {"nll": nll, "perplexity": metrics.perplexity(found.log_probs), "tokens": len(found.log_probs)}
    if isinstance(found, RegressionPredictions):
        mean, variance = found.mean.flatten(), found.variance.flatten()
        targets = targets.flatten()
        known = found.log_density is not None
        return {
            "nll": -found.log_density.double().mean().item() if known else None,  # type: ignore[union-attr]
            "rmse": metrics.rmse(mean, targets),
            "crps": metrics.crps_gaussian(mean, variance, targets) if known else None,
            "coverage90": metrics.interval_coverage(*metrics.gaussian_interval(mean, variance, 0.9), targets),
            **decision_scores(mean, targets, 0),
            "examples": len(targets),
        }
    correct = metrics.correct_per_example(found.log_probs, targets)
    both = 0 < correct.sum() < len(correct)  # AUROC needs right answers and wrong ones
    scaled = metrics.scaled_nll(found.log_probs, targets) if len(targets) > 1 else math.inf  # too few mistakes
    several = found.log_probs.shape[1] > TOP  # with fewer classes every answer would be right
    return {
        "accuracy": metrics.accuracy(found.log_probs, targets),
        "top5_accuracy": metrics.top_k_accuracy(found.log_probs, targets, TOP) if several else None,
        "nll": metrics.nll(found.log_probs, targets),
        "scaled_nll": scaled if scaled < math.inf else None,
        "ece": metrics.ece(found.log_probs, targets, ECE_BINS),
        "brier": metrics.brier(found.log_probs, targets),
        "aurc": metrics.aurc(found.log_probs, targets),
        "auroc": metrics.misclassification_auroc(found.log_probs, targets) if both else None,
        **decision_scores(found.log_probs.argmax(1), targets, found.log_probs.shape[1]),
        "examples": len(targets),
    }


def decision_scores(decisions: Tensor, targets: Tensor, classes: int) -> dict[str, float | None]:
    """GLUE's scores besides accuracy, which need the predictions alone and not how sure they are.

    Args:
        decisions: predicted classes (N,), or values.
        targets: true classes (N,), or values.
        classes: number of classes; 0 for values.

    Returns:
        Of two classes "f1" (of class 1) and "matthews", of more "matthews" alone, of values "pearson" and "spearman".
        A score that is not defined, as the correlation with a constant, is None.

    >>> import torch
    >>> decision_scores(torch.tensor([1, 0]), torch.tensor([1, 0]), 2)
    {'f1': 1.0, 'matthews': 1.0}
    """
    if classes == 2:
        return {"f1": metrics.f1(decisions, targets), "matthews": metrics.matthews_correlation(decisions, targets)}
    if classes:
        return {"matthews": metrics.matthews_correlation(decisions, targets)}
    if len(targets) < 2:
        return {"pearson": None, "spearman": None}
    found = {"pearson": metrics.pearson(decisions, targets), "spearman": metrics.spearman(decisions, targets)}
    return {name: None if value != value else value for name, value in found.items()}


def score_ood(test: Predictions, other: Predictions) -> dict[str, float]:
    """How well the largest probability tells test examples from out-of-domain ones.

    >>> import torch
    >>> def certain(p):
    ...     return Predictions(torch.tensor([[p, 1 - p]]).log(), None, torch.zeros(1), torch.ones(1))
    >>> score_ood(certain(0.9), certain(0.6))["auroc"]
    1.0
    """
    inside, outside = metrics.max_log_prob(test.log_probs), metrics.max_log_prob(other.log_probs)
    return {
        "auroc": metrics.auroc(inside, outside),
        "fpr95": metrics.fpr_at_tpr(inside, outside),
        "fpr95_paper": metrics.fpr95_paper(inside, outside),
        "detection_error": metrics.detection_error(inside, outside),
        "aupr_in": metrics.aupr_in(inside, outside),
        "aupr_out": metrics.aupr_out(inside, outside),
        "examples": len(outside),
    }
