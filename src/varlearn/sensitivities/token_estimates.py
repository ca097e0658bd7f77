"""What is known about each token of a language model's training data."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from varlearn.prediction.language_model import IGNORE


@dataclass(frozen=True, eq=False, repr=False)
class TokenSensitivity:
    """Losses and sensitivities of N sequences of T tokens, on the CPU, in the order of the loader.

    The logits are not kept: N x T x V numbers are too many. Where a target is -100, all values are 0.

    Attributes:
        ids: of the sequences, shape (N,).
        targets: tokens to predict, shape (N, T).
        token_loss: -log p of each target at the posterior mean, shape (N, T).
        token_loo_loss: the same without the token, or without its sequence, shape (N, T).
        token_score: sum of absolute changes of the token's probabilities, shape (N, T).
        token_paper_score: sum of absolute changes of its logits, shape (N, T).
        per: what is left out: "token" or "sequence".

    >>> zero, loss = torch.zeros(1, 2), torch.tensor([[0.1, 0.3]])
    >>> found = TokenSensitivity(torch.tensor([0]), torch.tensor([[5, 6]]), loss, 2 * loss, zero, zero)
    >>> found.loss, found.loo_loss
    (tensor([0.2000]), tensor([0.4000]))
    """

    ids: Tensor
    targets: Tensor
    token_loss: Tensor
    token_loo_loss: Tensor
    token_score: Tensor
    token_paper_score: Tensor
    per: str = "sequence"

    def __repr__(self) -> str:
        loss, loo = (float(self._mean_of_tokens(value)) for value in (self.token_loss, self.token_loo_loss))
        return (
            f"TokenSensitivity of {len(self.ids)} sequences and {int(self.tokens.sum())} tokens: loss {loss:.4g}, "
            f"leave-one-{self.per}-out loss {loo:.4g}"
        )

    @property
    def tokens(self) -> Tensor:
        """How many targets of each sequence count, shape (N,)."""
        return (self.targets != IGNORE).sum(1)

    @property
    def loss(self) -> Tensor:
        """The mean loss per token of each sequence, shape (N,)."""
        return self.token_loss.sum(1) / self.tokens

    @property
    def loo_loss(self) -> Tensor:
        """The mean leave-one-out loss per token of each sequence, shape (N,)."""
        return self.token_loo_loss.sum(1) / self.tokens

    @property
    def score(self) -> Tensor:
        """The mean score of the tokens of each sequence, shape (N,)."""
        return self.token_score.sum(1) / self.tokens

    @property
    def paper_score(self) -> Tensor:
        """The mean of the tokens' sums of |V e|, shape (N,)."""
        return self.token_paper_score.sum(1) / self.tokens

    def _mean_of_tokens(self, values: Tensor) -> Tensor:
        return values.sum(dtype=torch.float64) / self.tokens.sum()
