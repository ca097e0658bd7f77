"""Language models: the probability that the averaged predictive gives to each token of a text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from varlearn.prediction.average import log_average
from varlearn.prediction.gather import Batches, as_floats, check_numbers
from varlearn.prediction.loader_batches import Unpack
from varlearn.prediction.sample_curve import SampleCurve
from varlearn.prediction.sample_loop import Request, run
from varlearn.prediction.short_text import ShortText
from varlearn.types import Posterior, Sampler

IGNORE = -100  # PyTorch's and Hugging Face's mark of tokens that are not scored
_CHUNK = 1 << 24  # logits that are turned into float32 at once


@dataclass(frozen=True, eq=False, repr=False)
class TokenPredictions(ShortText):
    """What the averaged predictive says about the M scored tokens of N sequences, on the CPU.

    Attributes:
        log_probs: log sum_s w_s p_s(token | the tokens before it), shape (M,), in nats.
        targets: the tokens, shape (M,).
        sequences: the sequence of each token, counted from 0 in the order of the loader, shape (M,).
        sample_weights: w_s, shape (S,), summing to 1.
        seed: of the samples.
        nll_by_samples: NLL of the average over the first s samples, s = 1 .. S, shape (S,).

    >>> halves = torch.tensor([0.5, 0.5]).log()
    >>> round(TokenPredictions(halves, torch.zeros(2), torch.zeros(2), torch.ones(1)).perplexity, 6)
    2.0
    """

    log_probs: Tensor
    targets: Tensor
    sequences: Tensor
    sample_weights: Tensor
    seed: int = 0
    nll_by_samples: Tensor | None = None

    @property
    def perplexity(self) -> float:
        """exp of the mean negative log-probability of a token."""
        return (-self.log_probs.double().mean()).exp().item()


def predict_tokens(
    model: nn.Module,
    posterior: Posterior | Sampler,
    loader: Iterable[Any],
    samples: int = 64,
    seed: int = 0,
    *,
    shift: bool = False,
    vectorize: bool = False,
    unpack: Unpack | None = None,
    progress: bool | None = None,
) -> TokenPredictions:
    """Average next-token probabilities over posterior samples; everything not named here is as in `predict`.

    Only the probability of the token that is there is kept, one number per token, so memory depends neither on the
    number of samples nor on the vocabulary.

    Args:
        model: returns logits (B, T, V), or an object with `logits`.
        posterior: a posterior or sampler.
        loader: gives the same batches in every pass, with targets (B, T) of token numbers; -100 is not scored.
        samples: how many samples of each component.
        seed: names the samples.
        shift: False where targets[:, t] is what follows input t; True where targets are the inputs themselves, as in
            Hugging Face's labels.
        vectorize: run several samples at once by vmap.
        unpack: from a batch to (inputs, targets).
        progress: show a bar.

    >>> from varlearn.posterior import Point
    >>> net = nn.Embedding(2, 2)  # a bigram model: logits of the next token from this one
    >>> equal = Point({"weight": torch.zeros(2, 2)})
    >>> text = torch.tensor([[0, 1, 1]])
    >>> round(predict_tokens(net, equal, [(text, text)], shift=True).perplexity, 6)
    2.0
    """
    tokens = _Tokens(shift)
    targets, weights = run(model, posterior, loader, tokens.add, Request(samples, seed, vectorize, unpack, progress))
    scored, sequences, first = [], [], 0
    for value in targets:
        assert value is not None  # `add` has refused a batch without targets
        value = _aligned(value, shift)
        keep = value != IGNORE
        scored.append(value[keep])
        sequences.append(keep.nonzero()[:, 0] + first)
        first += value.shape[0]
    return TokenPredictions(
        log_probs=tokens.log_probs.joined(),
        targets=torch.cat(scored),
        sequences=torch.cat(sequences),
        sample_weights=weights,
        seed=seed,
        nll_by_samples=tokens.curve.nll(),
    )


class _Tokens:
    """Running averages of the probability of each scored token of each batch."""

    def __init__(self, shift: bool):
        self.log_probs, self.curve = Batches(), SampleCurve()
        self._shift = shift

    def add(self, batch: int, outputs: Any, targets: Tensor | None, log_weights: Tensor) -> None:
        if targets is None:
            raise ValueError(
                f"batch {batch} has no targets, whose tokens are scored; give pairs (inputs, targets), or continue "
                "texts with varlearn.generate"
            )
        if not isinstance(outputs, Tensor) or outputs.dim() != 4:
            shape = tuple(outputs.shape[1:]) if isinstance(outputs, Tensor) else type(outputs).__name__
            raise ValueError(f"outputs {shape} must be logits of shape (B, T, V), or an object with `logits`")
        logits = outputs[:, :, :-1] if self._shift else outputs  # (S, B, T, V)
        targets = _aligned(targets, self._shift).to(logits.device)
        if targets.shape != logits.shape[1:3]:
            raise ValueError(
                f"targets of shape {tuple(targets.shape)} for logits of shape {tuple(logits.shape[1:])}; "
                "they must be (B, T) and (B, T, V)"
            )
        keep = targets != IGNORE
        log_probs = torch.stack([_chosen(sample[keep], targets[keep]) for sample in logits])  # (S, tokens)
        check_numbers(log_probs, batch)
        self.log_probs[batch] = log_average(log_probs, log_weights, self.log_probs.get(batch))
        self.curve.add(batch, log_probs, log_weights)


def _aligned(targets: Tensor, shift: bool) -> Tensor:
    return targets[:, 1:] if shift else targets


def _chosen(logits: Tensor, tokens: Tensor) -> Tensor:
    """log softmax at the tokens: (M, V), (M,) to (M,), in float32 or better and few rows at a time."""
    rows = max(1, _CHUNK // logits.shape[-1])
    parts = [
        -cross_entropy(as_floats(logits[start : start + rows]), tokens[start : start + rows], reduction="none")
        for start in range(0, len(tokens), rows)
    ]
    return torch.cat(parts) if parts else torch.zeros(0, device=logits.device)
