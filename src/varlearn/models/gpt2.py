"""GPT-2 (Radford et al., 2019) without biases and without dropout, as the paper pretrains it."""

from __future__ import annotations

import math

from torch import Tensor, nn
from torch.nn.functional import gelu, linear, scaled_dot_product_attention

GPT2_VOCAB = 50304  # GPT-2's 50,257 tokens, filled up to a multiple of 64, which matrix products prefer
BYTES = 256


class _Attention(nn.Module):
    """Causal self-attention of several heads; the queries, keys and values come from one product."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        qkv = self.qkv(x).unflatten(-1, (3, self.heads, -1))  # (B, T, 3, heads, width / heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each (B, heads, T, width / heads)
        mixed = scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(-2))  # (B, T, width)


class _Feedforward(nn.Module):
    """Two layers with a GELU between, four times as wide inside."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Linear(width, 4 * width, bias=False)
        self.out = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(gelu(self.inner(x)))


class _Block(nn.Module):
    """Attention, then the feedforward layer, each normalized before and added to its input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width, bias=False)
        self.attention = _Attention(width, heads)
        self.feedforward_norm = nn.LayerNorm(width, bias=False)
        self.feedforward = _Feedforward(width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.feedforward(self.feedforward_norm(x))


class GPT2(nn.Module):
    """A decoder that reads its token embedding again as its output layer.

    With L layers of width d, V tokens and T positions it has V d + T d + L (12 d^2 + 2 d) + d parameters. Matrices and
    embeddings start as N(0, 0.02^2), and those that write into the residual stream as N(0, 0.02^2 / (2 L)). The
    embedding is one parameter used twice, not two tied ones, so a checkpoint holds it once.

    Args:
        layers: L.
        heads: attention heads; they share out the width.
        width: d.
        vocab: V.
        context: T, the longest sequence.

    L = 1, d = 4, V = 5, T = 3 gives 20 + 12 + (192 + 8) + 4:

    >>> import torch
    >>> model = GPT2(layers=1, heads=2, width=4, vocab=5, context=3)
    >>> sum(p.numel() for p in model.parameters())
    236
    >>> model(torch.tensor([[0, 4, 1]])).shape
    torch.Size([1, 3, 5])
    """

    def __init__(self, *, layers: int, heads: int, width: int, vocab: int, context: int) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"width={width} must be a multiple of heads={heads}; choose heads that divide it")
        self.context = context
        self.tokens = nn.Embedding(vocab, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(_Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width, bias=False)
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                nn.init.normal_(weight, std=0.02 / math.sqrt(2 * layers) if name.endswith("out.weight") else 0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map tokens (B, T) to the logits of what follows each of them (B, T, V)."""
        length = tokens.shape[-1]
        if length > self.context:
            raise ValueError(f"length {length} must be <= context={self.context}; shorten the text or enlarge context")
        x = self.tokens(tokens) + self.positions.weight[:length]  # (B, T, width)
        return linear(self.norm(self.blocks(x)), self.tokens.weight)


def gpt2_125m(vocab: int = GPT2_VOCAB, context: int = 1024) -> GPT2:
    """Build the paper's 125M model: 12 layers, 12 heads, width 768.

    Args:
        vocab: number of tokens.
        context: longest sequence, in tokens.

    >>> import torch
    >>> with torch.device("meta"):  # shapes without memory
    ...     sum(p.numel() for p in gpt2_125m().parameters())
    124373760
    """
    return GPT2(layers=12, heads=12, width=768, vocab=vocab, context=context)


def gpt2_355m(vocab: int = GPT2_VOCAB, context: int = 1024) -> GPT2:
    """Build the paper's 355M model: 24 layers, 16 heads, width 1024; arguments as in `gpt2_125m`.

    >>> import torch
    >>> with torch.device("meta"):
    ...     sum(p.numel() for p in gpt2_355m().parameters())
    354599936
    """
    return GPT2(layers=24, heads=16, width=1024, vocab=vocab, context=context)


def gpt2_773m(vocab: int = GPT2_VOCAB, context: int = 1024) -> GPT2:
    """Build the paper's 773M model: 36 layers, 20 heads, width 1280; arguments as in `gpt2_125m`.

    >>> import torch
    >>> with torch.device("meta"):
    ...     sum(p.numel() for p in gpt2_773m().parameters())
    773582080
    """
    return GPT2(layers=36, heads=20, width=1280, vocab=vocab, context=context)


def gpt2_10m(vocab: int = BYTES, context: int = 256) -> GPT2:
    """Build a 10M model for a CPU: 8 layers, 5 heads, width 320, on bytes; arguments as in `gpt2_125m`.

    >>> sum(p.numel() for p in gpt2_10m().parameters())
    9999680
    """
    return GPT2(layers=8, heads=5, width=320, vocab=vocab, context=context)


def gpt2_3m(vocab: int = BYTES, context: int = 256) -> GPT2:
    """Build a 3M model for one core: 4 layers, 4 heads, width 256, on bytes; arguments as in `gpt2_125m`.

    >>> sum(p.numel() for p in gpt2_3m().parameters())
    3279104
    """
    return GPT2(layers=4, heads=4, width=256, vocab=vocab, context=context)


def gpt2_tiny(vocab: int = BYTES, context: int = 64) -> GPT2:
    """Build a model that a test trains in seconds: 2 layers, 2 heads, width 32; arguments as in `gpt2_125m`.

    >>> sum(p.numel() for p in gpt2_tiny().parameters())
    34976
    """
    return GPT2(layers=2, heads=2, width=32, vocab=vocab, context=context)
