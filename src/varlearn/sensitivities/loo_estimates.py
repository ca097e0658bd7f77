"""What is known about each example: its error, its deviation, and the leave-one-out estimates that follow."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True, eq=False, repr=False)
class Sensitivity:
    """Error and deviation of N examples with C outputs each, on the CPU, in the order of the loader.

    Attributes:
        ids: of the examples, shape (N,).
        targets: class numbers, shape (N,), or float targets, shape (N, C), of a regression.
        outputs: f, the logits or the predicted values at the posterior mean, shape (N, C).
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
        """Cross-entropy, or (f - y)^2 / (2 s^2) summed over outputs, at f, shape (N,)."""
        return self._loss(self.outputs)

    @property
    def loo_loss(self) -> Tensor:
        """The same loss at f + V e, shape (N,). Its mean estimates the loss on new data."""
        return self._loss(self.loo_outputs)

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
