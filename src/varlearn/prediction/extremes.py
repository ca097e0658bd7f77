"""Which examples to look at: the most uncertain ones, and those with the largest loss."""

from __future__ import annotations

import torch
from torch import Tensor

from varlearn.prediction.classifier import Predictions
from varlearn.prediction.language_model import TokenPredictions
from varlearn.prediction.regressor import RegressionPredictions

AnyPredictions = Predictions | RegressionPredictions | TokenPredictions


def most_uncertain(predictions: AnyPredictions, count: int = 8) -> list[int]:
    """Numbers of the examples with the largest predictive entropy or standard deviation, the most uncertain first.

    Args:
        predictions: of single examples; texts to be continued have no order here, and the list is empty.
        count: how many at most.

    >>> p = Predictions(torch.tensor([[0.9, 0.1], [0.5, 0.5]]).log(), None, torch.zeros(2), torch.ones(1))
    >>> most_uncertain(p, 1)
    [1]
    """
    if isinstance(predictions, TokenPredictions) or not _is_flat(predictions):
        return []
    if isinstance(predictions, RegressionPredictions):
        return _largest(predictions.variance.flatten(), count)
    return _largest(predictions.predictive_entropy, count)


def worst(predictions: AnyPredictions, count: int = 8) -> list[int]:
    """Numbers of the examples (for texts, sequences) with the largest loss, the worst first; empty without targets.

    >>> log_probs = torch.tensor([[0.9, 0.1], [0.2, 0.8]]).log()
    >>> worst(Predictions(log_probs, torch.tensor([0, 0]), torch.zeros(2), torch.ones(1)), 1)
    [1]
    """
    losses = loss_per_example(predictions)
    return [] if losses is None else _largest(losses, count)


def loss_per_example(predictions: AnyPredictions) -> Tensor | None:
    """The negative log-probability of each example's target, of texts per token; None where it is not known.

    >>> log_probs = torch.tensor([[0.5, 0.5]]).log()
    >>> loss_per_example(Predictions(log_probs, torch.tensor([0]), torch.zeros(1), torch.ones(1)))
    tensor([0.6931])
    """
    if isinstance(predictions, TokenPredictions):
        sequences = predictions.sequences.long()
        tokens = torch.bincount(sequences).clamp(min=1)
        return -torch.bincount(sequences, predictions.log_probs.double()) / tokens
    if isinstance(predictions, RegressionPredictions):
        return None if predictions.log_density is None else -predictions.log_density
    targets = predictions.targets
    if targets is None or not _is_flat(predictions):
        return None
    return -predictions.log_probs.gather(1, targets.long().unsqueeze(1)).squeeze(1)


def _is_flat(predictions: Predictions | RegressionPredictions) -> bool:
    """Whether each example has a single prediction: one distribution over classes, or one number."""
    if isinstance(predictions, RegressionPredictions):
        return predictions.mean.numel() == len(predictions.mean)
    return predictions.log_probs.dim() == 2


def _largest(values: Tensor, count: int) -> list[int]:
    return values.topk(min(count, len(values))).indices.tolist()
