"""Bags of embeddings as plain operations: `nn.EmbeddingBag` calls a kernel that has first derivatives alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode


class PlainBags(TorchFunctionMode):
    """Within this context, bags of equal length are computed by `embedding` and a sum, a mean or a maximum.

    The results are those of the kernel up to rounding. Bags given by offsets go to the kernel.

    >>> layer, words = torch.nn.EmbeddingBag(5, 3), torch.tensor([[1, 2], [4, 4]])
    >>> with PlainBags():
    ...     plain = layer(words)
    >>> torch.allclose(plain, layer(words))
    True
    """

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Replace the calls that the layers make."""
        given = dict(kwargs or {})
        if func is F.embedding_bag and args[0].dim() == 2 and given.get("max_norm") is None:
            padding = given.get("padding_idx")
            return _bags(args[0], args[1], given.get("mode", "mean"), given.get("per_sample_weights"), padding)
        return func(*args, **given)


def _bags(words: Tensor, table: Tensor, mode: str, factors: Tensor | None, padding: int | None) -> Tensor:
    """One row per bag; bags without a word, apart from padding, are 0."""
    rows = F.embedding(words, table)  # (B, T, width)
    kept = torch.ones_like(words, dtype=torch.bool) if padding is None else words != padding % len(table)
    count = kept.sum(1, keepdim=True)
    if mode == "max":
        most = rows.masked_fill(~kept[..., None], -math.inf).amax(1)
        return torch.where(count > 0, most, 0.0)
    shares = kept.to(rows.dtype) if factors is None else kept * factors
    total = (rows * shares[..., None]).sum(1)
    return total / count.clamp_min(1) if mode == "mean" else total
