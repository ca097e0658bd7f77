"""Averages over posterior samples of what a Hugging Face evaluation loop returns."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import mse_loss

from varlearn.prediction import log_average

IGNORE = -100  # the label of what is not scored, and what the Trainer pads with

Kind = Literal["classes", "tokens", "values"]


def kind_of(logits: Tensor, labels: Tensor | None, vocabulary: int | None) -> Kind:
    """What is averaged: log-probabilities of all classes, of the tokens in `labels` alone, or plain values.

    Args:
        logits: of a batch, (B, C), (B, T, C) or (B, 1).
        labels: of the batch, or None.
        vocabulary: number of tokens of the model, or None; with as many classes only the labels' probabilities are
            kept, because those of all tokens would not fit into memory.

    >>> kind_of(torch.zeros(2, 3), torch.tensor([0, 2]), vocabulary=100)
    'classes'
    >>> kind_of(torch.zeros(2, 5, 100), torch.zeros(2, 5, dtype=torch.long), vocabulary=100)
    'tokens'
    >>> kind_of(torch.zeros(2, 1), torch.tensor([0.5, 1.5]), vocabulary=None)
    'values'
    """
    if logits.shape[-1] == 1 or (labels is not None and labels.is_floating_point()):
        if labels is not None and labels.dim() > 1 and labels.shape[-1] > 1:
            raise ValueError(
                f"labels of shape {tuple(labels.shape)} and dtype {labels.dtype} look like several labels per example, "
                "which averaged evaluation does not know; use posterior_samples=0 and varlearn.prediction"
            )
        return "values"
    if logits.dim() == 3 and labels is not None and logits.shape[-1] == vocabulary:
        return "tokens"
    return "classes"


def summary(logits: Tensor, labels: Tensor | None, kind: Kind, shift: bool) -> Tensor:
    """What one sample says about a batch, in float32, in the form that is averaged.

    Args:
        logits: (B, C), (B, T, C) or (B, 1).
        labels: (B,) or (B, T).
        kind: see `kind_of`.
        shift: for tokens: whether logits[:, t] are about labels[:, t + 1], as in causal models.

    Returns:
        log p (B, ..., C) of classes; log p (B, T) of tokens, 0 where they are not scored; values (B, 1).

    >>> summary(torch.zeros(1, 3, 4), torch.tensor([[0, 1, -100]]), "tokens", shift=True)
    tensor([[-1.3863,  0.0000]])
    """
    if kind == "values":
        return logits.float()
    if kind == "classes":
        return torch.log_softmax(logits.float(), -1)
    assert labels is not None
    if shift:
        logits, labels = logits[:, :-1], labels[:, 1:]
    scored = labels != IGNORE
    chosen = logits.float().gather(-1, labels.clamp_min(0)[..., None])[..., 0]
    return torch.where(scored, chosen - logits.float().logsumexp(-1), 0.0)


class Average:
    """The running average of passes over one data set, in one order.

    Args:
        kind: see `kind_of`.
        shift: see `summary`.
        labels: that every pass must see, in this order, or None to take the first pass's.

    >>> average = Average("classes", shift=False)
    >>> for probs in ([[0.5, 0.5]], [[0.25, 0.75]]):
    ...     average.add(torch.tensor(probs).log(), torch.tensor([0]), weight=0.5)
    >>> round(average.loss(), 4), average.predictions.exp()  # -log 0.375
    (0.9808, tensor([[0.3750, 0.6250]]))
    """

    def __init__(self, kind: Kind, shift: bool, labels: Any = None) -> None:
        self.kind: Kind = kind
        self._shift = shift
        self._running: Tensor | None = None
        self._labels: Tensor | None = None if labels is None else torch.as_tensor(labels)

    @property
    def predictions(self) -> Tensor:
        """Log-probabilities of the averaged predictive, or the mean of the values."""
        assert self._running is not None, "no pass was added"
        return self._running

    def add(self, predictions: Any, labels: Any, weight: float) -> None:
        """Add one pass: what `summary` returned, joined over batches, with the weight of its sample.

        Raises:
            ValueError: if the labels are not those of the passes before.
        """
        labels = None if labels is None else torch.as_tensor(labels)
        if labels is not None and self._labels is not None and not torch.equal(labels, self._labels):
            raise ValueError(
                "two passes over the evaluation data saw the examples in different orders, so that they cannot be "
                "averaged; use a data loader that does not shuffle, or posterior_samples=0"
            )
        self._labels = labels
        values = torch.as_tensor(predictions)
        if self.kind == "values":
            self._running = weight * values if self._running is None else self._running + weight * values
        else:
            log_weight = torch.tensor([weight], dtype=torch.float64).log()
            self._running = log_average(values[None], log_weight, self._running)

    def loss(self) -> float | None:
        """Mean negative log-probability of the labels (squared error for values) over examples or tokens."""
        if self._labels is None:
            return None
        labels = self._labels
        if self.kind == "values":
            return mse_loss(self.predictions.squeeze(-1), labels.float().view_as(self.predictions.squeeze(-1))).item()
        if self.kind == "tokens":
            labels = labels[:, 1:] if self._shift else labels
            return -self.predictions[labels != IGNORE].double().mean().item()
        scored = labels != IGNORE
        chosen = self.predictions[scored].gather(-1, labels[scored][:, None])
        return -chosen.double().mean().item()
