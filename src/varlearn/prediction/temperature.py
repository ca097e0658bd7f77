"""One scalar after training: the temperature at which the averaged predictive fits held-out data best."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from torch import nn

from varlearn.posterior.discrete import Point, components
from varlearn.prediction.classifier import Predictions, predict
from varlearn.prediction.gather import NotANumberError
from varlearn.prediction.language_model import TokenPredictions
from varlearn.prediction.regressor import RegressionPredictions
from varlearn.types import Posterior

Q = TypeVar("Q", bound=Posterior)
AnyPredictions = Predictions | RegressionPredictions | TokenPredictions

_STEP = math.log(4.0)  # between two temperatures of the first search; sigma halves or doubles
_COLDEST, _WARMEST = -5, 2  # in these steps: temperatures 1/1024 to 16, sigma / 32 to 4 sigma
_TOLERANCE = math.log(1.25)  # width of the last interval, in log T


def calibrate(
    model: nn.Module,
    posterior: Q,
    loader: Iterable[Any],
    samples: int = 64,
    seed: int = 0,
    *,
    by: Callable[..., AnyPredictions] = predict,
    **options: Any,
) -> Q:
    """Fit the posterior's temperature by the NLL of the averaged predictive on held-out data.

    Temperature 0, the mean, is one of the candidates. On these data and with these samples the average is therefore
    never worse than the mean. All temperatures share the same noise, so the NLL is a smooth function of the temperature
    and its minimum is not one of noise. It costs about as much as 14 predictions of the data.

    Use data that the model was not trained on. Do not use the test data.

    Args:
        model: as for `predict`.
        posterior: its own temperature is replaced. A mixture gets one temperature for all components.
        loader: held-out data with targets; gives the same batches in every pass.
        samples: S; take as many as for the predictions, because fewer samples favour a lower temperature.
        seed: names the samples.
        by: the function that predicts: `predict`, `predict_regression`, `predict_tokens`, or one of your own that is
            called as by(model, posterior, loader, samples, seed, **options), e.g. with `Linearized(posterior)`.
        **options: for `by`, e.g. `noise_variance` or `unpack`.

    Returns:
        The same posterior at the best temperature; `ess` is unchanged. A point is returned as it is.

    >>> import torch
    >>> from varlearn.posterior import DiagGaussian
    >>> from varlearn.prediction import predict_regression
    >>> wide = DiagGaussian({"weight": torch.ones(1, 1)}, {"weight": torch.ones(1, 1)}, ess=1.0)
    >>> data = [(torch.ones(2, 1), torch.tensor([[0.9], [1.1]]))]  # the mean is right, and sigma = 1 is too wide
    >>> fitted = calibrate(nn.Linear(1, 1, bias=False), wide, data, by=predict_regression, noise_variance=0.01)
    >>> fitted.temperature, fitted.ess
    (0.0, {'weight': 1.0})
    """
    if all(isinstance(part, Point) for _, part in components(posterior)):
        return posterior
    if not hasattr(posterior, "at_temperature"):
        raise TypeError(f"a {type(posterior).__name__} has no method at_temperature(T); pass e.g. a DiagGaussian")

    def at(temperature: float) -> Q:
        return posterior.at_temperature(temperature)  # type: ignore[attr-defined]

    return at(
        best_temperature(lambda temperature: nll_of(by(model, at(temperature), loader, samples, seed, **options)))
    )


def best_temperature(nll: Callable[[float], float]) -> float:
    """The temperature with the lowest NLL: 0, the mean, or one between 1/1024 and 16. About 14 calls.

    Args:
        nll: from a temperature to the NLL of held-out data; may raise `NotANumberError` where outputs overflow.

    >>> best_temperature(lambda temperature: 1.0 + temperature)
    0.0
    >>> 0.4 < best_temperature(lambda temperature: (temperature - 0.5) ** 2) < 0.6
    True
    """

    def loss(log_temperature: float) -> float:
        try:
            return nll(math.exp(log_temperature))
        except NotANumberError:  # too wide: weights so large that the outputs overflow
            return math.inf

    at_mean = nll(0.0)
    grid = [number * _STEP for number in range(_COLDEST, _WARMEST + 1)]
    losses = {place: loss(place) for place in grid}
    best = min(losses, key=losses.__getitem__)
    lowest, best = min((losses[best], best), golden_section(loss, best - _STEP, best + _STEP))
    return math.exp(best) if lowest < at_mean else 0.0


def temperature_curve(
    model: nn.Module,
    posterior: Posterior,
    loader: Iterable[Any],
    samples: int = 8,
    seed: int = 0,
    *,
    by: Callable[..., AnyPredictions] = predict,
    **options: Any,
) -> list[tuple[float, float]]:
    """NLL of the averaged predictive against the temperature, from 0 (the mean) to 4 times the posterior's own.

    It shows whether the posterior is too wide (the lowest NLL is at the left) or too narrow. It costs as much as four
    predictions.

    Args:
        model: as for `predict`.
        posterior: with a temperature > 0.
        loader: data with targets; gives the same batches in every pass.
        samples: posterior samples at each temperature.
        seed: names the samples.
        by: as for `calibrate`.
        **options: for `by`.

    Returns:
        Pairs (T, NLL), in the order of T; infinity where the outputs overflow. Empty for a point, and where T is 0.

    >>> import torch
    >>> from varlearn.posterior import DiagGaussian
    >>> q = DiagGaussian({"weight": torch.zeros(2, 1)}, {"weight": torch.ones(2, 1)}, ess=1.0)
    >>> data = [(torch.ones(2, 1), torch.tensor([0, 1]))]  # nothing to learn: the mean's NLL, log 2, is the best
    >>> [(t, round(nll, 2)) for t, nll in temperature_curve(nn.Linear(1, 2, bias=False), q, data)][0]
    (0.0, 0.69)
    """
    own = getattr(posterior, "temperature", 0.0)
    if own == 0 or not hasattr(posterior, "at_temperature"):
        return []
    points = []
    for factor in (0.0, 0.0625, 0.25, 1.0, 4.0):
        tempered = posterior.at_temperature(factor * own)  # type: ignore[attr-defined]
        try:
            points.append((factor * own, nll_of(by(model, tempered, loader, samples, seed, **options))))
        except NotANumberError:
            points.append((factor * own, math.inf))
    return points


def golden_section(
    loss: Callable[[float], float], low: float, high: float, tolerance: float = _TOLERANCE
) -> tuple[float, float]:
    """The lowest loss that golden-section search finds between two places, and where it is.

    Args:
        loss: of a place.
        low: the first place.
        high: the last one.
        tolerance: width of the last interval.

    >>> value, place = golden_section(lambda x: (x - 0.3) ** 2, -1.0, 1.0)
    >>> abs(place - 0.3) < 0.15
    True
    """
    ratio = (math.sqrt(5.0) - 1.0) / 2.0
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    at_left, at_right = loss(left), loss(right)
    while high - low > tolerance:
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - ratio * (high - low)
            at_left = loss(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + ratio * (high - low)
            at_right = loss(right)
    return min((at_left, left), (at_right, right))


def nll_of(found: AnyPredictions) -> float:
    """The mean negative log-probability of the targets, in nats."""
    if isinstance(found, TokenPredictions):
        log_probs = found.log_probs
    elif found.targets is None:
        raise ValueError("the loader gives no targets, and the temperature is fitted to them; give (inputs, targets)")
    elif isinstance(found, RegressionPredictions):
        if found.log_density is None:
            raise ValueError(
                "the model predicts no noise, so there is no density to fit; "
                "pass noise_variance > 0, or return a pair (mean, variance)"
            )
        log_probs = found.log_density
    else:
        log_probs = found.log_probs.gather(-1, found.targets.long().unsqueeze(-1))
    return -log_probs.double().mean().item()
