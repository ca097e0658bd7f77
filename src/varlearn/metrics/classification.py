"""Scores of predicted class distributions: accuracy, NLL, Brier score, entropy.

Each mean has its per-example variant; chunks of a data set combine with `merge_means`, or by concatenating the
per-example values.
"""

from __future__ import annotations

import torch
from torch import Tensor

from varlearn.metrics.inputs import check_targets, checked_rows


def accuracy(log_probs: Tensor, targets: Tensor) -> float:
    r"""Share of examples whose most probable class is the target, $\frac1N \sum_i [\arg\max_c p_{ic} = y_i]$.

    Args:
        log_probs: (N, C) log-probabilities.
        targets: (N,) class indices.

    Returns:
        A share in [0, 1].

    Example:
        >>> accuracy(torch.tensor([[0.9, 0.1], [0.2, 0.8]]).log(), torch.tensor([0, 0]))
        0.5
    """
    return int(correct_per_example(log_probs, targets).sum()) / len(targets)


def top_k_accuracy(log_probs: Tensor, targets: Tensor, k: int = 5) -> float:
    """Share of examples whose target is among the k most probable classes.

    Classes of equal probability are ranked by their index, so the result does not depend on a sort and k = 1 is
    `accuracy` exactly.

    Args:
        log_probs: (N, C) log-probabilities.
        targets: (N,) class indices.
        k: 1 <= k <= C.

    Returns:
        A share in [0, 1].

    Example:
        >>> top_k_accuracy(torch.tensor([[0.5, 0.3, 0.2], [0.5, 0.3, 0.2]]).log(), torch.tensor([1, 2]), k=2)
        0.5
    """
    check_targets(log_probs, targets)
    if not 1 <= k <= log_probs.shape[1]:
        raise ValueError(f"k={k} must be between 1 and the number of classes {log_probs.shape[1]}; lower k")
    hits = 0
    for rows, lp in checked_rows(log_probs):
        target = targets[rows, None].long()  # (B, 1)
        value = lp.gather(-1, target)  # (B, 1)
        lower_index = torch.arange(lp.shape[1], device=lp.device) < target  # (B, C)
        ahead = (lp > value) | ((lp == value) & lower_index)
        hits += int((ahead.sum(-1) < k).sum())
    return hits / len(targets)


def nll(log_probs: Tensor, targets: Tensor) -> float:
    r"""Negative log-likelihood per example in nats, $-\frac1N \sum_i \log p_{i y_i}$.

    Args:
        log_probs: (N, C) log-probabilities of the averaged predictive.
        targets: (N,) class indices.

    Returns:
        The mean; inf as soon as one target has probability 0.

    Example:
        >>> round(nll(torch.tensor([[0.5, 0.5], [0.25, 0.75]]).log(), torch.tensor([0, 0])), 4)  # (ln 2 + ln 4) / 2
        1.0397
    """
    return nll_per_example(log_probs, targets).mean().item()


def brier(log_probs: Tensor, targets: Tensor) -> float:
    r"""Brier score summed over classes, $\frac1N \sum_i \sum_c (p_{ic} - [y_i = c])^2$, between 0 and 2.

    Args:
        log_probs: (N, C) log-probabilities.
        targets: (N,) class indices.

    Returns:
        The mean over examples (some texts divide by C as well; this one, like the paper, does not).

    Example:
        >>> round(brier(torch.tensor([[0.5, 0.5], [1.0, 0.0]]).log(), torch.tensor([0, 0])), 6)  # (0.5 + 0) / 2
        0.25
    """
    return brier_per_example(log_probs, targets).mean().item()


def predictive_entropy(log_probs: Tensor) -> float:
    r"""Mean entropy of the predictions in nats, $-\frac1N \sum_i \sum_c p_{ic} \log p_{ic}$, with $0 \log 0 = 0$.

    Args:
        log_probs: (N, C) log-probabilities.

    Returns:
        A value between 0 and log C.

    Example:
        >>> round(predictive_entropy(torch.tensor([[0.5, 0.5], [1.0, 0.0]]).log()), 4)  # (ln 2 + 0) / 2
        0.3466
    """
    return entropy_per_example(log_probs).mean().item()


def correct_per_example(log_probs: Tensor, targets: Tensor) -> Tensor:
    """Whether the most probable class is the target; of classes with equal probability the lowest index counts.

    Args:
        log_probs: (N, C) log-probabilities.
        targets: (N,) class indices.

    Returns:
        (N,) bool.

    Example:
        >>> correct_per_example(torch.tensor([[0.9, 0.1], [0.2, 0.8]]).log(), torch.tensor([0, 0]))
        tensor([ True, False])
    """
    check_targets(log_probs, targets)
    out = torch.empty(len(targets), dtype=torch.bool, device=log_probs.device)
    for rows, lp in checked_rows(log_probs):
        out[rows] = lp.argmax(-1) == targets[rows]
    return out


def nll_per_example(log_probs: Tensor, targets: Tensor) -> Tensor:
    """The negative log-probability of each target in nats, inf where it has probability 0.

    Args:
        log_probs: (N, C) log-probabilities.
        targets: (N,) class indices.

    Returns:
        (N,) float64.

    Example:
        >>> nll_per_example(torch.tensor([[0.5, 0.5], [1.0, 0.0]]).log(), torch.tensor([0, 1]))
        tensor([0.6931,    inf], dtype=torch.float64)
    """
    check_targets(log_probs, targets)
    out = _vector_for(log_probs)
    for rows, lp in checked_rows(log_probs):
        out[rows] = -lp.gather(-1, targets[rows, None].long())[:, 0]
    return out


def brier_per_example(log_probs: Tensor, targets: Tensor) -> Tensor:
    """The squared distance of each predicted distribution from the one-hot target.

    Args:
        log_probs: (N, C) log-probabilities.
        targets: (N,) class indices.

    Returns:
        (N,) float64, each between 0 and 2.

    Example:
        >>> brier_per_example(torch.tensor([[0.5, 0.5], [1.0, 0.0]]).log(), torch.tensor([0, 1]))
        tensor([0.5000, 2.0000], dtype=torch.float64)
    """
    check_targets(log_probs, targets)
    out = _vector_for(log_probs)
    for rows, lp in checked_rows(log_probs):
        p = lp.exp()
        p.scatter_add_(-1, targets[rows, None].long(), p.new_full((len(p), 1), -1.0))
        out[rows] = p.square().sum(-1)
    return out


def entropy_per_example(log_probs: Tensor) -> Tensor:
    """The entropy of each predicted distribution in nats, with 0 log 0 = 0.

    Args:
        log_probs: (N, C) log-probabilities.

    Returns:
        (N,) float64.

    Example:
        >>> entropy_per_example(torch.tensor([[0.5, 0.5], [1.0, 0.0]]).log())
        tensor([0.6931, 0.0000], dtype=torch.float64)
    """
    out = _vector_for(log_probs)
    for rows, lp in checked_rows(log_probs):
        out[rows] = torch.special.entr(lp.exp()).sum(-1)  # entr(0) = 0
    return out


def max_log_prob(log_probs: Tensor) -> Tensor:
    """The log of the largest probability of each row: the paper's confidence score, higher = more in-domain.

    It ranks as the probability itself does, without the ties that rounding close to 1 makes.

    Args:
        log_probs: (N, C) log-probabilities.

    Returns:
        (N,) float64, each <= 0 up to rounding.

    Example:
        >>> max_log_prob(torch.tensor([[0.5, 0.5], [1.0, 0.0]]).log())
        tensor([-0.6931,  0.0000], dtype=torch.float64)
    """
    out = _vector_for(log_probs)
    for rows, lp in checked_rows(log_probs):
        out[rows] = lp.amax(-1)
    return out


def _vector_for(log_probs: Tensor) -> Tensor:
    return torch.empty(log_probs.shape[:1], dtype=torch.float64, device=log_probs.device)
