"""A text classifier of two gated recurrent layers (Cho et al., 2014)."""

from __future__ import annotations

from torch import Tensor, nn

PADDING = 0  # the token that fills short texts up


class GRUClassifier(nn.Module):
    """Embedding, two GRUs, and a linear layer that reads the state after a text's last token; `gru` builds it."""

    def __init__(self, classes: int, vocab: int, embedding: int, hidden: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab, embedding)
        self.gru = nn.GRU(embedding, hidden, num_layers=2, batch_first=True)
        self.head = nn.Linear(hidden, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map tokens (B, T), padded with 0 at the end, to logits (B, classes)."""
        states, _ = self.gru(self.tokens(tokens))  # (B, T, hidden)
        last = (tokens != PADDING).sum(dim=1).sub(1).clamp(min=0)  # (B,); of an empty text, the first position
        index = last[:, None, None].expand(-1, 1, states.shape[-1])  # (B, 1, hidden)
        return self.head(states.gather(1, index).squeeze(1))


def gru(classes: int = 4, vocab: int = 10_000, embedding: int = 128, hidden: int = 256) -> GRUClassifier:
    """Build the two-layer GRU classifier, about 2M parameters.

    The paper gives the layers and the total; this split of the total is ours. Padding never reaches the logits: the
    layers run forwards, and the state read is the one after the last token that is not 0. The recurrence is `nn.GRU`,
    which `torch.compile` leaves uncompiled and vmap refuses.

    Args:
        classes: number of logits.
        vocab: number of tokens, 0 for padding among them.
        embedding: size of a token's vector.
        hidden: size of each GRU's state.

    >>> import torch
    >>> model = gru(classes=4)
    >>> sum(p.numel() for p in model.parameters())
    1972228
    >>> model(torch.tensor([[7, 3, 9], [5, 0, 0]])).shape
    torch.Size([2, 4])
    """
    return GRUClassifier(classes, vocab, embedding, hidden)
