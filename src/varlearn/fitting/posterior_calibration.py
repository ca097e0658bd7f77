"""After training: the temperature of the posterior and the noise of a regression, from data that were held out."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeVar

import torch
from torch import nn

from varlearn.fitting.arrangement import Arrangement
from varlearn.fitting.own_batches import OwnBatches
from varlearn.fitting.target_units import TargetUnits
from varlearn.fitting.task_predictor import Noise, TaskPredictor
from varlearn.methods import Batch
from varlearn.prediction import RegressionPredictions, calibrate, estimate_noise
from varlearn.types import Posterior

Q = TypeVar("Q", bound=Posterior)
_MOST = 5_000  # examples that are used


def calibrated(
    model: nn.Module, learned: Q, predictor: TaskPredictor, data: Arrangement, samples: int, seed: int
) -> tuple[Q, TaskPredictor]:
    """The posterior at the temperature that fits the held-out data, and the predictor with its noise.

    A temperature and a noise variance explain the same errors, so that both are fitted together: each temperature is
    scored with the noise that fits it best. Without held-out data the temperature stays, and the noise of a regression
    is estimated from errors on the training data, corrected to leave-one-out errors.

    Args:
        model: with the mean weights.
        learned: at temperature 1.
        predictor: without noise.
        data: of the fit.
        samples: posterior samples per prediction.
        seed: of the samples.
    """
    is_regression = data.look.task == "regression"
    if data.held_out is not None:
        few = _First(data.held_out, data.look.batch_size)
        inner = replace(predictor, unpack=None)  # the batches are pairs
        if hasattr(learned, "at_temperature"):
            by = inner.with_best_noise if is_regression else inner
            learned = calibrate(model, learned, few, samples, seed, by=by)
        found = inner(model, learned, few, samples, seed, keep_samples=True) if is_regression else None
    elif is_regression:
        warnings.warn(
            "no data could be held out, so the noise is estimated from leave-one-out errors on the training data; pass "
            "val_loader for a better estimate",
            stacklevel=3,
        )
        read_once = list(_First(data.train, data.look.batch_size))  # the loader may shuffle
        found = replace(predictor, unpack=None)(model, learned, read_once, samples, seed)
    else:
        found = None
    if not isinstance(found, RegressionPredictions):
        return learned, predictor
    factor = estimate_noise(found, loo=data.held_out is None)
    if not data.look.has_variance:
        return learned, replace(predictor, noise=Noise(factor, data.source))
    units = data.units or TargetUnits(torch.zeros(()), torch.ones(()))
    units = replace(units, noise_factor=factor.mean().item())
    return learned, replace(predictor, units=units, noise=Noise(None, data.source))


@dataclass(frozen=True)
class _First:
    """The first batches of held-out data, the same in each pass."""

    batches: OwnBatches
    batch_size: int

    def __iter__(self) -> Iterator[Batch]:
        return islice(iter(self.batches), math.ceil(_MOST / self.batch_size))
