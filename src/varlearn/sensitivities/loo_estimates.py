"""What is known about each example: its error, its deviation, and the leave-one-out estimates that follow."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

Score = Literal[
    "probability", "probability_l2", "probability_max", "paper", "paper_l2", "paper_max"
]  # what is measured, and by which norm: the sum of absolute values unless named
SCORES: tuple[str, ...] = get_args(Score)


@dataclass(frozen=True, eq=False, repr=False)
class Sensitivity:
    """Error and deviation of N examples with C outputs each, on the CPU, in the order of the loader.

    Attributes:
        ids: of the examples, shape (N,).
        targets: class numbers, shape (N,), or float targets, shape (N, C), of a regression.
        outputs: f, the logits or the predicted values at the posterior mean, shape (N, C). Of a network that returns
            (mean, variance): the means and then the log variances, shape (N, 2 C).
        error: e, the gradient of the example's loss in f, shape (N, C).
        deviation: V e, the estimated change of f when the example is left out, shape (N, C).
        score: one number per example, shape (N,); larger is more sensitive.
        noise_variance: s^2 of the squared error (f - y)^2 / (2 s^2); unused in classification.

    >>> even, wrong = torch.tensor([[0.0, 0.0]]), torch.tensor([[-0.5, 0.5]])
    >>> found = Sensitivity(torch.tensor([7]), torch.tensor([0]), even, wrong, 0.2 * wrong, torch.tensor([0.1]))
    >>> found.probability_shift, found.loo_probs
    (tensor([[-0.0500,  0.0500]]), tensor([[0.4502, 0.5498]]))
    """

    ids: Tensor
    targets: Tensor
    outputs: Tensor
    error: Tensor
    deviation: Tensor
    score: Tensor
    noise_variance: float = 1.0

    def __repr__(self) -> str:
        loss, loo = self.loss.double().mean().item(), self.loo_loss.double().mean().item()
        return f"Sensitivity of {len(self.ids)} examples: loss {loss:.4g}, leave-one-out loss {loo:.4g}"

    @property
    def loo_outputs(self) -> Tensor:
        """f + V e, the outputs without the example to first order, shape (N, C)."""
        return self.outputs + self.deviation

    @property
    def probs(self) -> Tensor:
        """softmax(f), shape (N, C); for classification."""
        self._need_classes("probs")
        return self.outputs.softmax(-1)

    @property
    def loo_probs(self) -> Tensor:
        """softmax(f + V e), the probabilities without the example, shape (N, C); for classification."""
        self._need_classes("loo_probs")
        return self.loo_outputs.softmax(-1)

    @property
    def probability_shift(self) -> Tensor:
        """Lambda V e with Lambda = diag(p) - p p^T, p's change to first order, shape (N, C); for classification."""
        self._need_classes("probability_shift")
        return softmax_slope(self.outputs, self.deviation)

    @property
    def loss(self) -> Tensor:
        """Cross-entropy, (f - y)^2 / (2 s^2) or the Gaussian's -log p, summed over outputs, at f, shape (N,)."""
        return self._loss(self.outputs)

    @property
    def loo_loss(self) -> Tensor:
        """The same loss at f + V e, shape (N,). Its mean estimates the loss on new data."""
        return self._loss(self.loo_outputs)

    @property
    def paper_score(self) -> Tensor:
        """The paper's score, the sum of |V e| over outputs, shape (N,), whichever score was asked for."""
        return scored("paper", self.outputs, self.deviation)

    @property
    def probability_score(self) -> Tensor:
        """The sum of |Lambda V e| over classes, shape (N,), whichever score was asked for; for classification."""
        self._need_classes("probability_score")
        return scored("probability", self.outputs, self.deviation)

    @property
    def loo_label_probs(self) -> Tensor:
        """The leave-one-out probability of each example's label, shape (N,); for classification."""
        return self.loo_probs.gather(1, self.targets[:, None]).squeeze(1)

    @property
    def refitted_outputs(self) -> Tensor:
        """f + v e / (1 - v / s^2), shape (N, 1): exact for linear regression with posterior covariance diag(sigma^2).

        For a regression with one output, v being the variance of f. NaN where v >= s^2: no such regression exists.
        """
        if not self.targets.is_floating_point() or self.outputs.shape[-1] != 1:
            kind = "a regression" if self.targets.is_floating_point() else "a classification"
            raise ValueError(
                f"refitted_outputs of {kind} with {self.outputs.shape[-1]} outputs are unknown: it must be a "
                "regression with one output; use loo_outputs"
            )
        v = torch.where(self.error == 0, 0.0, self.deviation / self.error)
        left = 1 - v / self.noise_variance
        return self.outputs + torch.where(left > 0, self.deviation / left, math.nan)

    def _loss(self, outputs: Tensor) -> Tensor:
        if self.targets.is_floating_point():
            if outputs.shape[-1] == 2 * self.targets.shape[-1]:
                return gaussian_nll(outputs, self.targets)
            return (outputs - self.targets).square().sum(-1) / (2 * self.noise_variance)
        return F.cross_entropy(outputs, self.targets, reduction="none")

    def _need_classes(self, name: str) -> None:
        if self.targets.is_floating_point():
            raise ValueError(
                f"{name} of a regression (targets are {self.targets.dtype}) do not exist: they need classes; "
                "use outputs, deviation and loo_outputs"
            )


def softmax_slope(logits: Tensor, direction: Tensor) -> Tensor:
    """Lambda u with Lambda = diag(p) - p p^T, the derivative of softmax along u.

    >>> softmax_slope(torch.zeros(2), torch.tensor([1.0, -1.0]))
    tensor([ 0.5000, -0.5000])
    """
    probs = logits.softmax(-1)
    return probs * (direction - (probs * direction).sum(-1, keepdim=True))


def scored(score: str, outputs: Tensor, deviation: Tensor) -> Tensor:
    """One number per example from V e, shape (N,).

    >>> scored("paper", torch.zeros(1, 2), torch.tensor([[3.0, -4.0]]))
    tensor([7.])
    >>> scored("paper_l2", torch.zeros(1, 2), torch.tensor([[3.0, -4.0]]))
    tensor([5.])
    """
    if score not in SCORES:
        raise ValueError(f"score={score!r} must be one of {', '.join(map(repr, SCORES))}; leave it out for the first")
    what, _, norm = score.partition("_")
    moved = softmax_slope(outputs, deviation) if what == "probability" else deviation
    return moved.norm(p={"": 1.0, "l2": 2.0, "max": math.inf}[norm], dim=-1)


def gaussian_nll(outputs: Tensor, targets: Tensor) -> Tensor:
    """-log N(y; mean, variance) summed over the values of each example, shape (N,).

    Args:
        outputs: means and then log variances, shape (N, 2 C).
        targets: y, shape (N, C).

    >>> round(gaussian_nll(torch.tensor([[1.0, 0.0]]), torch.tensor([[3.0]])).item(), 4)  # (2^2 + log 2 pi) / 2
    2.9189
    """
    mean, log_variance = outputs.chunk(2, -1)
    terms = (targets - mean).square() * torch.exp(-log_variance) + log_variance + math.log(2 * math.pi)
    return 0.5 * terms.sum(-1)
