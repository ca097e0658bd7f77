"""The average of predictive distributions, in log-probabilities."""

from __future__ import annotations

import torch
from torch import Tensor


def log_average(log_probs: Tensor, log_weights: Tensor | None = None, running: Tensor | None = None) -> Tensor:
    """log sum_s w_s p_s = logsumexp_s(log p_s + log w_s); with equal weights, logsumexp - log S.

    The one place where predictions are averaged: the mean of log-probabilities, or the log of a mean of probabilities
    that has underflowed, is something else.

    Args:
        log_probs: log p_s, shape (S, ...).
        log_weights: log w_s, shape (S,); -log S where None.
        running: the result of earlier calls, shape (...), to which these samples are added; their weights and these
            add up to 1 at the end.

    Returns:
        Shape (...), in the dtype of `log_probs`.

    >>> p = torch.tensor([[0.5], [0.25]])
    >>> log_average(p.log()).exp()
    tensor([0.3750])
    """
    samples = log_probs.shape[0]
    if log_weights is None:
        log_weights = torch.full((samples,), 1.0 / samples, dtype=torch.float64).log()
    weighted = log_probs + log_weights.to(log_probs).view(samples, *[1] * (log_probs.dim() - 1))
    total = weighted[0] if samples == 1 else torch.logsumexp(weighted, dim=0)
    return total if running is None else torch.logaddexp(running, total)


def entropy(log_probs: Tensor) -> Tensor:
    """-sum_c p_c log p_c in nats over the last dimension, with 0 log 0 = 0.

    >>> entropy(torch.tensor([0.5, 0.5, 0.0]).log()).item()  # log 2
    0.6931471824645996
    """
    return torch.special.entr(log_probs.exp()).sum(-1)
