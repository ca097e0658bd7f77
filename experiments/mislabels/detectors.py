"""Scores of mislabelled examples, each larger for a more suspicious example, and how well a ranking finds them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from varlearn.metrics.ranking import area_under_roc, average_precision, rank_counts


def margin(logits: Tensor, labels: Tensor) -> Tensor:
    """The largest logit of another class minus that of the label; the mean over epochs is minus AUM."""
    own = logits.gather(1, labels[:, None]).squeeze(1)
    others = logits.masked_fill(one_hot(labels, logits.shape[1]).bool(), -torch.inf)
    return others.amax(1) - own


def el2n(logits: Tensor, labels: Tensor) -> Tensor:
    """|softmax(f) - y| (Paul et al., 2021)."""
    return (logits.softmax(1) - one_hot(labels, logits.shape[1])).norm(dim=1)


def from_epochs(logits: Tensor, labels: Tensor, early: int) -> dict[str, Tensor]:
    """The scores that the logits of every epoch give: loss, early loss, mean loss, margin, AUM and EL2N.

    Args:
        logits: after each epoch, shape (epochs, N, C).
        labels: as given.
        early: the epoch of the early scores, from 1.
    """
    losses = torch.stack([cross_entropy(one, labels, reduction="none") for one in logits])
    return {
        "loss": losses[-1],
        "early loss": losses[early - 1],
        "mean loss": losses.mean(0),
        "margin": margin(logits[-1], labels),
        "AUM": torch.stack([margin(one, labels) for one in logits]).mean(0),
        "EL2N": el2n(logits[early - 1], labels),
    }


def quality(score: Tensor, is_wrong: Tensor) -> dict[str, float]:
    """AUROC, average precision, and the share of wrong labels missed when as many are flagged as there are."""
    count = int(is_wrong.sum())
    flagged = score.argsort(descending=True, stable=True)[:count]
    counts = rank_counts(score[is_wrong].double(), score[~is_wrong].double())
    return {
        "auroc": area_under_roc(counts),
        "ap": average_precision(counts),
        "miss": 1.0 - float(is_wrong[flagged].double().mean()),
    }


def qualities(scores: Mapping[str, Tensor], is_wrong: Tensor) -> dict[str, dict[str, float]]:
    """`quality` of each score."""
    return {name: quality(score, is_wrong) for name, score in scores.items()}
