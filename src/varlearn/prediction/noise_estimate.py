"""The variance of the noise in a regression, estimated from the errors of predictions."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from varlearn.prediction.average import log_average
from varlearn.prediction.regressor import RegressionPredictions

_STEPS = 100  # of the search
_RANGE = math.log(1e6)  # below the mean squared error
_ITERATIONS = 50  # of the leave-one-out estimate, which converges in a few
_LARGEST_LEVERAGE = 0.95


def estimate_noise(found: RegressionPredictions, *, loo: bool = False) -> Tensor:
    r"""The noise variance under which the targets have the highest density, per output.

    The result is the factor c that maximizes sum_i log sum_s w_s N(y_i; f_s(x_i), c b_i). Where the network predicts
    the noise, b_i is what it predicts and c corrects its scale. Elsewhere b_i = 1 and c is the noise variance.
    Predictions that did not keep their samples (`keep_samples=True`) are taken as Gaussians.

    Use predictions of data that the network was not trained on. Where there are none, `loo=True` takes those of the
    training data and corrects each error for the example's own influence: with the epistemic variance e_i and the
    leverage l_i = e_i / (c b_i), the leave-one-out error is (y_i - mean_i) / (1 - l_i), and its epistemic variance
    e_i / (1 - l_i). This is exact for Bayesian linear regression.

    Args:
        found: predictions with targets.
        loo: correct for the influence of each example on its own prediction.

    Returns:
        c, shape () for one output per example, else the shape of the outputs of one example.

    >>> zeros, errors = torch.zeros(2, 1), torch.tensor([[1.0], [-3.0]])
    >>> found = RegressionPredictions(zeros, zeros, zeros, errors, None, torch.ones(1))
    >>> round(estimate_noise(found).item(), 1)  # (1 + 9) / 2
    5.0
    """
    if found.targets is None:
        raise ValueError("the predictions have no targets, and the noise is estimated from errors; give pairs (x, y)")
    mean, rows = found.mean.double(), len(found.mean)
    targets = found.targets.double().reshape(mean.shape)
    epistemic, base = (part.double().reshape(rows, -1) for part in (found.epistemic, _base(found)))
    samples = None if found.sample_means is None or loo else found.sample_means.double()
    errors = (targets - (mean if samples is None else samples)).reshape(-1, rows, mean[0].numel())  # (S or 1, N, D)
    factors = []
    for output in range(errors.shape[-1]):
        offsets, noise, spread = errors[..., output], base[:, output], epistemic[:, output]
        spread = spread if samples is None else torch.zeros_like(spread)  # the samples themselves are spread
        factor = _most_likely(offsets, spread, noise, found.sample_weights)
        for _ in range(_ITERATIONS if loo else 0):
            left = 1.0 - (spread / (factor * noise)).clamp(max=_LARGEST_LEVERAGE)
            factor = _most_likely(offsets / left, spread / left, noise, found.sample_weights)
        factors.append(factor)
    return torch.stack(factors).reshape(mean.shape[1:] if len(factors) > 1 else ())


def with_noise(found: RegressionPredictions, factor: Tensor) -> RegressionPredictions:
    """Predictions with the noise that `estimate_noise` found, and the density that it maximized.

    >>> zero = torch.zeros(1, 1)
    >>> found = RegressionPredictions(zero, zero, zero, zero, None, torch.ones(1))
    >>> with_noise(found, torch.tensor(4.0)).std.item()
    2.0
    """
    aleatoric = factor.to(found.mean) * _base(found)
    density = None
    if found.targets is not None:
        centers = found.mean.unsqueeze(0) if found.sample_means is None else found.sample_means
        variance = (aleatoric + found.epistemic if found.sample_means is None else aleatoric).double()
        offsets = found.targets.double().reshape(found.mean.shape) - centers.double()
        terms = _log_normal(offsets, variance).reshape(*offsets.shape[:2], -1).sum(2)
        density = log_average(terms, found.sample_weights.log() if len(terms) > 1 else None)
    return replace(found, aleatoric=aleatoric, log_density=density, nll_by_samples=None)


def _base(found: RegressionPredictions) -> Tensor:
    """The noise that the network predicts, or ones."""
    return found.aleatoric if bool((found.aleatoric > 0).all()) else torch.ones_like(found.aleatoric)


def _most_likely(errors: Tensor, epistemic: Tensor, base: Tensor, weights: Tensor) -> Tensor:
    """The best factor of a grid, refined by a parabola: (S, N), (N,), (N,), (S,) to ()."""
    largest = (errors.square() / base).mean().clamp_min(torch.finfo(torch.float32).tiny)
    factors = largest * torch.linspace(-_RANGE, 0.0, _STEPS, dtype=torch.float64).exp()
    shares = weights.log() if len(errors) > 1 else None
    losses = torch.stack([-log_average(_log_normal(errors, epistemic + c * base), shares).sum() for c in factors])
    best = int(losses.argmin())
    if not 0 < best < _STEPS - 1:
        return factors[best]
    left, middle, right = losses[best - 1 : best + 2]
    shift = 0.5 * (left - right) / (left - 2.0 * middle + right).clamp_min(1e-300)
    return factors[best] * (shift * _RANGE / (_STEPS - 1)).exp()


def _log_normal(errors: Tensor, variance: Tensor) -> Tensor:
    return -0.5 * (errors.square() / variance + variance.log() + math.log(2.0 * math.pi))
