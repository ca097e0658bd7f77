"""Regression: the predictive mean, and its variance split into what the weights and what the noise contribute."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from varlearn.prediction.average import log_average
from varlearn.prediction.gather import Batches, SampleBatches, as_floats, check_numbers, joined_targets
from varlearn.prediction.loader_batches import Unpack
from varlearn.prediction.sample_curve import SampleCurve
from varlearn.prediction.sample_loop import Request, run
from varlearn.prediction.short_text import ShortText
from varlearn.types import Posterior, Sampler


@dataclass(frozen=True, eq=False, repr=False)
class RegressionPredictions(ShortText):
    """The predictive sum_s w_s N(f_s(x), noise_s(x)) of N examples, on the CPU.

    Attributes:
        mean: sum_s w_s f_s(x), shape (N, ...) as the model's outputs.
        epistemic: sum_s w_s (f_s - mean)^2, the variance from the weights; same shape.
        aleatoric: sum_s w_s noise_s(x), the variance from the noise; same shape.
        targets: as the loader gave them, or None.
        log_density: log sum_s w_s N(y; f_s, noise_s) of each example's target, shape (N,); None without targets or
            noise. Its negative mean is the NLL of the averaged predictive.
        sample_weights: w_s, shape (S,), summing to 1.
        sample_means: f_s(x), shape (S, N, ...), if they were asked for.
        seed: of the samples.
        nll_by_samples: NLL of the average over the first s samples, s = 1 .. S, shape (S,); None without `log_density`.

    >>> one = torch.ones(1)
    >>> RegressionPredictions(one, 9 * one, 16 * one, None, None, one).std
    tensor([5.])
    """

    mean: Tensor
    epistemic: Tensor
    aleatoric: Tensor
    targets: Tensor | None
    log_density: Tensor | None
    sample_weights: Tensor
    sample_means: Tensor | None = None
    seed: int = 0
    nll_by_samples: Tensor | None = None

    @property
    def variance(self) -> Tensor:
        """The variance of the averaged predictive: epistemic + aleatoric."""
        return self.epistemic + self.aleatoric

    @property
    def std(self) -> Tensor:
        """Square root of `variance`."""
        return self.variance.sqrt()


def predict_regression(
    model: nn.Module,
    posterior: Posterior | Sampler,
    loader: Iterable[Any],
    samples: int = 64,
    seed: int = 0,
    *,
    noise_variance: float | Tensor | None = None,
    keep_samples: bool = False,
    vectorize: bool = False,
    unpack: Unpack | None = None,
    progress: bool | None = None,
) -> RegressionPredictions:
    """Average a regression model over posterior samples; everything not named here is as in `predict`.

    Args:
        model: returns the mean f(x) of shape (B, ...), or a pair (mean, variance) of that shape.
        posterior: a posterior or sampler.
        loader: gives the same batches in every pass.
        samples: how many samples of each component.
        seed: names the samples.
        noise_variance: of the targets around f(x), in squared units of the targets: one number, or one for each output
            of an example. `estimate_noise` finds it. Leave it out for a model that returns a variance; for another one
            None is 0, with a warning.
        keep_samples: keep each sample's f(x) too.
        vectorize: run several samples at once by vmap.
        unpack: from a batch to (inputs, targets).
        progress: show a bar.

    >>> from varlearn.posterior import Mixture, Point
    >>> two = Mixture([Point({"weight": torch.tensor([[w]])}) for w in (1.0, 3.0)])
    >>> p = predict_regression(nn.Linear(1, 1, bias=False), two, [torch.ones(1, 1)], noise_variance=0.25)
    >>> p.mean.item(), p.epistemic.item(), p.aleatoric.item()
    (2.0, 1.0, 0.25)
    """
    given = torch.as_tensor(0.0 if noise_variance is None else noise_variance)
    if not bool((given >= 0).all() & given.isfinite().all()):
        raise ValueError(f"noise_variance={noise_variance} must be >= 0 and finite; it is a variance, not a std")
    moments = _Moments(noise_variance, keep_samples)
    request = Request(samples, seed, vectorize, unpack, progress)
    targets, weights = run(model, posterior, loader, moments.add, request)
    if moments.lacks_noise:
        warnings.warn(
            "noise_variance=None is 0 here, because the model predicts no noise: intervals will be too narrow; pass "
            "noise_variance=estimate_noise(...) of held-out predictions, or 0.0 for none",
            stacklevel=2,
        )
    complete = len(moments.log_density) == len(targets)
    return RegressionPredictions(
        mean=moments.mean.joined(),
        epistemic=moments.epistemic.joined(),
        aleatoric=moments.aleatoric.joined(),
        targets=joined_targets(targets),
        log_density=moments.log_density.joined() if complete else None,
        sample_weights=weights,
        sample_means=moments.kept.joined() if keep_samples else None,
        seed=seed,
        nll_by_samples=moments.curve.nll() if complete else None,
    )


class _Moments:
    """Weighted running mean and variances of each batch, without cancellation (West's update)."""

    def __init__(self, noise_variance: float | Tensor | None, keep_samples: bool):
        self.mean, self.epistemic, self.aleatoric = Batches(), Batches(), Batches()
        self.log_density, self.kept, self.curve = Batches(), SampleBatches(), SampleCurve()
        self._noise_variance, self._keep_samples = noise_variance, keep_samples
        self._weight: dict[int, float] = {}
        self.lacks_noise = False

    def add(self, batch: int, outputs: Any, targets: Tensor | None, log_weights: Tensor) -> None:
        means, noise = self._split(outputs)  # (S, B, ...) each
        check_numbers(means - means, batch)  # infinity minus itself is NaN too
        check_numbers(noise - noise, batch)
        for sample, (mean, variance) in enumerate(zip(means, noise, strict=True)):
            self._add_one(batch, mean, variance, math.exp(log_weights[sample].item()))
        if targets is not None and bool((noise > 0).all()):
            densities = _log_density(means, noise, targets.to(means.device))  # (S, B)
            self.log_density[batch] = log_average(densities, log_weights, self.log_density.get(batch))
            self.curve.add(batch, densities, log_weights)
        if self._keep_samples:
            self.kept.add(batch, means)

    def _split(self, outputs: Any) -> tuple[Tensor, Tensor]:
        if isinstance(outputs, (tuple, list)):
            if len(outputs) != 2:
                raise ValueError(f"the model returned {len(outputs)} outputs; return f(x) or a pair (mean, variance)")
            if self._noise_variance is not None:
                raise ValueError(
                    f"noise_variance={self._noise_variance} for a model that returns its own variance; leave it out"
                )
            mean, variance = as_floats(outputs[0]), as_floats(outputs[1])
            if mean.shape != variance.shape or bool((variance < 0).any()):
                lowest = variance.min().item()
                raise ValueError(
                    f"the model's variance has shape {tuple(variance.shape[1:])} and minimum {lowest:g}; "
                    f"it must be >= 0 and of the mean's shape {tuple(mean.shape[1:])}, use e.g. softplus"
                )
            return mean, variance
        mean = as_floats(outputs)
        self.lacks_noise = self._noise_variance is None
        return mean, torch.as_tensor(0.0 if self.lacks_noise else self._noise_variance).to(mean).expand_as(mean)

    def _add_one(self, batch: int, mean: Tensor, variance: Tensor, weight: float) -> None:
        total = self._weight[batch] = self._weight.get(batch, 0.0) + weight
        before = self.mean.get(batch)
        if before is None:
            self.mean[batch] = mean.clone()
            self.epistemic[batch] = torch.zeros_like(mean)
            self.aleatoric[batch] = weight * variance
            return
        step = mean - before
        before.add_(step, alpha=weight / total)
        self.epistemic[batch].add_(step * (mean - before), alpha=weight)
        self.aleatoric[batch].add_(variance, alpha=weight)


def _log_density(mean: Tensor, variance: Tensor, targets: Tensor) -> Tensor:
    """log N(y; mean, variance), summed over all but the first two dimensions: (S, B, ...) to (S, B)."""
    if targets.numel() != mean[0].numel():
        raise ValueError(
            f"targets of shape {tuple(targets.shape)} for outputs of shape {tuple(mean.shape[1:])}; "
            "they must have as many numbers"
        )
    offset = targets.to(mean).view(mean.shape[1:]) - mean
    terms = -0.5 * (offset.square() / variance + variance.log() + math.log(2.0 * math.pi))
    return terms.reshape(*mean.shape[:2], -1).sum(2)
