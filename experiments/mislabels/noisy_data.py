"""Training sets with labels by people, some of them wrong, and the networks that learn from them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from varlearn.data import load
from varlearn.data.cifar10_labels import noisy_labels
from varlearn.data.examples import Examples
from varlearn.models import frn_cnn, resnet20

VOCABULARY, WORDS = 5_000, 32
LABELS = ("ag_news", "cifar10n-aggre", "cifar10n-random1", "cifar10n-worse")


class MeanOfWords(nn.Module):
    """The mean of the words' vectors, a hidden layer, and the classes; padding does not count."""

    def __init__(self, classes: int = 4, width: int = 64) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, width)
        self.layers = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, classes))

    def forward(self, tokens: Tensor) -> Tensor:
        """Map tokens (B, T), 0 for padding, to logits (B, classes)."""
        known = (tokens != 0).unsqueeze(-1).float()
        return self.layers((self.words(tokens) * known).sum(1) / known.sum(1).clamp(min=1))


@dataclass(frozen=True)
class NoisyData:
    """Examples as people labelled them.

    Attributes:
        train: with the labels by people.
        clean: the true labels.
        test: with true labels.
    """

    train: Examples
    clean: Tensor
    test: Examples

    @property
    def is_wrong(self) -> Tensor:
        """Whether the given label of each training example is wrong."""
        return self.train.targets != self.clean


def noisy_data(labels: str, n: int, n_test: int) -> NoisyData:
    """The first n training examples.

    Args:
        labels: one of `LABELS`.
        n: training examples.
        n_test: test examples.
    """
    if labels == "ag_news":
        options: dict[str, Any] = {"vocab": VOCABULARY, "context": WORDS}
        train = load("ag_news-pack-human", "train", **options).first(n)
        clean = load("ag_news-pack", "train", **options).first(n)
        return NoisyData(train, clean.targets, load("ag_news-pack", "test", **options).first(n_test))
    train = load("cifar10", "train").first(n)
    given = noisy_labels(labels.removeprefix("cifar10n-"))[:n]  # type: ignore[arg-type]
    return NoisyData(replace(train, targets=given), train.targets, load("cifar10", "test").first(n_test))


def network(labels: str, size: str, seed: int) -> nn.Module:
    """The network: "small" fits one core, "full" is ResNet-20 for images."""
    torch.manual_seed(seed)
    if labels == "ag_news":
        return MeanOfWords()
    return resnet20() if size == "full" else frn_cnn()
