"""Multiple-choice questions put to a language model: the probability of each answer's token behind the question."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from varlearn.prediction.samplers import Weights
from varlearn.types import Forward, Posterior


@dataclass(frozen=True)
class AnswerTokens:
    """A language model as a classifier: a sampler for `predict`, whose classes are tokens that may come next.

    The logits of a question are those of the answers' tokens at its last token, so that the probabilities of the
    answers add up to 1 for each sample of the weights, and are averaged then.

    Args:
        posterior: over the weights of the model, or of an adapter.
        answers: the token of each class.

    The batches of the loader are pairs of inputs and classes (N,), or mappings with "labels". Inputs are tokens (B, T),
    or a mapping with "input_ids" and, where texts have different lengths, "attention_mask"; padding on either side.

    >>> from varlearn.posterior import Point
    >>> from varlearn.prediction import predict
    >>> net = nn.Embedding(3, 3)  # a bigram model: logits of the next token from this one
    >>> q = Point({"weight": torch.tensor([[0.0, 1, 1], [9, 0, 1], [0, 0, 0]])})
    >>> questions = [(torch.tensor([[0, 1]]), torch.tensor([1]))]
    >>> predict(net, AnswerTokens(q, (1, 2)), questions, samples=1).log_probs.exp()  # of logits 0 and 1
    tensor([[0.2689, 0.7311]])
    """

    posterior: Posterior
    answers: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(set(self.answers)) < max(2, len(self.answers)):
            raise ValueError(f"answers={self.answers} must be two or more different tokens")

    def start(self, model: nn.Module) -> None:
        """Write the tensors that go with the weights but are not random."""
        Weights(self.posterior).start(model)

    def draw(self, model: nn.Module, seed: int, index: int) -> Forward:
        """The model at sample `index`, reduced to the answers."""
        forward = Weights(self.posterior).draw(model, seed, index)
        return lambda inputs: answer_logits(forward(inputs), inputs, self.answers)


def answer_logits(logits: Tensor, inputs: Any, answers: tuple[int, ...]) -> Tensor:
    """The logits (B, C) of the answers behind each question; what one trains on as a classifier.

    Args:
        logits: of the next token, (B, T, V), or of the last places alone.
        inputs: tokens (B, T), or a mapping that may have "attention_mask" (B, T).
        answers: the token of each class.

    >>> answer_logits(torch.arange(6.0).view(1, 2, 3), {"attention_mask": torch.tensor([[1, 0]])}, (0, 2))
    tensor([[0., 2.]])
    """
    mask = None if isinstance(inputs, Tensor) else inputs.get("attention_mask")
    if mask is None:
        last = torch.full((len(logits),), logits.shape[1] - 1, device=logits.device)
    else:
        places = torch.arange(mask.shape[1], device=mask.device)
        last = (places * (mask != 0)).argmax(1).to(logits.device)  # of the last 1 in each row
        last = last - (mask.shape[1] - logits.shape[1])  # the model may return the last logits alone
        if bool((last < 0).any()):
            raise ValueError("the model returned no logits behind the shorter questions; pad them on the left")
    rows = torch.arange(len(logits), device=logits.device)
    return logits[rows, last][:, list(answers)]
