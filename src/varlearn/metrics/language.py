"""Scores of a language model from the log-probabilities it gave to the observed tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from varlearn.metrics.chunks import merge_means, row_slices
from varlearn.metrics.inputs import check_vector

ROUNDING = 1e-3
"""How far above 0 a log-probability may be before it is refused: half-precision models round there."""


def perplexity(token_log_probs: Tensor, mask: Tensor | None = None) -> float:
    r"""Exponential of the mean negative log-likelihood per token, $\exp(-\frac1T \sum_t \log p(x_t | x_{<t}))$.

    Every token weighs the same, so perplexities of chunks combine under the logarithm:
    `exp(merge_means([(log(ppl_1), T_1), (log(ppl_2), T_2)]))`; `nll_per_token` gives the mean itself.

    Args:
        token_log_probs: any shape, the log-probability in nats of each observed token.
        mask: the same shape, bool, True where the token counts (False for padding); all count by default.

    Returns:
        A value >= 1 up to rounding; inf where a token has probability 0.

    Example:
        >>> round(perplexity(torch.tensor([0.5, 0.125]).log()), 6)  # 1 / sqrt(1/2 * 1/8)
        4.0
    """
    return torch.tensor(nll_per_token(token_log_probs, mask), dtype=torch.float64).exp().item()


def nll_per_token(token_log_probs: Tensor, mask: Tensor | None = None) -> float:
    """Mean negative log-likelihood per token in nats, the logarithm of the perplexity.

    Args:
        token_log_probs: any shape, the log-probability in nats of each observed token.
        mask: the same shape, bool, True where the token counts; all count by default.

    Returns:
        The mean in float64; inf where a token has probability 0.

    Example:
        >>> nll_per_token(torch.tensor([[-1.0, -2.0], [-6.0, -9.0]]), torch.tensor([[True, True], [True, False]]))
        3.0
    """
    values = token_log_probs.reshape(-1)
    if mask is not None:
        if mask.dtype != torch.bool or mask.shape != token_log_probs.shape:
            raise ValueError(
                f"mask has dtype {mask.dtype} and shape {tuple(mask.shape)}, must be bool and "
                f"{tuple(token_log_probs.shape)} like token_log_probs; build it with tokens != padding"
            )
        values = values[mask.reshape(-1)]
    values = check_vector(values, "token_log_probs")
    if bool((values > ROUNDING).any()):
        row = int((values > ROUNDING).nonzero()[0])
        raise ValueError(
            f"token_log_probs row {row} is {values[row].item():.6g}, must be <= 0; pass log-probabilities, not "
            "probabilities, logits or losses"
        )
    chunks = (values[rows].double() for rows in row_slices(len(values)))
    return merge_means((-chunk.mean().item(), len(chunk)) for chunk in chunks)
