"""A mixture of samplers: ensembles whose members are predicted in different ways, e.g. with dropout masks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from varlearn.posterior.binding import write_into
from varlearn.posterior.draw import uniform
from varlearn.prediction.samplers import Weights
from varlearn.types import Forward, Posterior, Sampler


@dataclass(frozen=True)
class AtMean:
    """A sampler that starts from the mean of a posterior, whatever weights the model has.

    Args:
        posterior: its mean and fixed tensors are written first.
        sampler: starts from them.
    """

    posterior: Posterior
    sampler: Sampler

    def start(self, model: nn.Module) -> None:
        """Write the mean, then start the sampler."""
        write_into(model, {**(self.posterior.fixed or {}), **self.posterior.mean})
        self.sampler.start(model)

    def draw(self, model: nn.Module, seed: int, index: int) -> Forward:
        """The sampler's predictor."""
        return self.sampler.draw(model, seed, index)


@dataclass(frozen=True)
class SamplerMixture:
    """p(y | x) = sum_k w_k p_k(y | x), each p_k averaged over its own posterior or sampler.

    `predict` takes the same number of draws from each part, as it does for a `Mixture`.

    Args:
        parts: posteriors, and samplers that write all the weights that they need.
        weights: w_k > 0, summing to 1.

    >>> import torch
    >>> from varlearn.posterior import Point
    >>> from varlearn.prediction import Weights, predict_regression
    >>> points = [Point({"weight": torch.tensor([[w]])}) for w in (1.0, 3.0)]
    >>> both = SamplerMixture([AtMean(point, Weights(point)) for point in points], (0.25, 0.75))
    >>> net, x = nn.Linear(1, 1, bias=False), [(torch.ones(1, 1), torch.zeros(1, 1))]
    >>> predict_regression(net, both, x, samples=1, noise_variance=1.0).mean
    tensor([[2.5000]])
    """

    parts: Sequence[Posterior | Sampler]
    weights: Sequence[float]

    def start(self, model: nn.Module) -> None:
        """Nothing: the parts do not share a state."""

    def draw(self, model: nn.Module, seed: int, index: int) -> Forward:
        """The predictor of a part that is drawn with probability w_k."""
        left, chosen = uniform(seed, index), len(self.parts) - 1
        for number, weight in enumerate(self.weights):
            left -= weight
            if left < 0:
                chosen = number
                break
        part = self.parts[chosen]
        sampler = part if isinstance(part, Sampler) else Weights(part)
        model.eval()
        sampler.start(model)
        return sampler.draw(model, seed, index)
