"""Predictions of a fitted network, in the form of its task and in the units of its targets."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from varlearn.fitting.array_inputs import as_tensors, weights_dtype
from varlearn.fitting.first_look import Look
from varlearn.fitting.target_units import TargetUnits
from varlearn.methods import Method
from varlearn.prediction import predict, predict_regression, predict_tokens
from varlearn.prediction.loader_batches import Unpack, split_batch
from varlearn.prediction.noise_estimate import estimate_noise, with_noise
from varlearn.prediction.predictions_file import AnyPredictions
from varlearn.types import Posterior

Source = Literal["validation data", "a held-out tenth of the training data", "leave-one-out errors"]


@dataclass(frozen=True)
class Noise:
    """The noise of a regression.

    Attributes:
        variance: of each output, in squared units of the targets. None where the network predicts it.
        source: what it was estimated from, or the scale of the network's own.
    """

    variance: Tensor | None
    source: Source


@dataclass(frozen=True)
class TaskPredictor:
    """Averages the network over a posterior, with the function of the task.

    Attributes:
        look: task and classes.
        method: says what is averaged over.
        units: of the targets; None for the network's own.
        noise: of a regression; None before it is estimated.
        unpack: from a batch to (inputs, targets); None for pairs and mappings.
    """

    look: Look
    method: Method[Any]
    units: TargetUnits | None = None
    noise: Noise | None = None
    unpack: Unpack | None = None

    def __call__(
        self,
        model: nn.Module,
        posterior: Posterior,
        loader: Iterable[Any],
        samples: int,
        seed: int,
        *,
        progress: bool | None = False,
        **options: Any,
    ) -> AnyPredictions:
        """Predict; arguments as in `varlearn.predict`."""
        source = self.method.predictor(posterior)
        unpack = partial(self.pair, dtype=weights_dtype(model))
        shared = {"unpack": unpack, "progress": progress, **options}
        with contextlib.nullcontext() if self.units is None else self.units.on(model):
            match self.look.task:
                case "classification":
                    return predict(model, source, loader, samples, seed, **shared)
                case "language":
                    return predict_tokens(model, source, loader, samples, seed, **shared)
                case "regression":
                    known = None if self.look.has_variance else 0.0 if self.noise is None else self.noise.variance
                    return predict_regression(model, source, loader, samples, seed, noise_variance=known, **shared)

    def with_best_noise(self, *arguments: Any, **options: Any) -> AnyPredictions:
        """Predict a regression, with the noise that fits these data best."""
        found = self(*arguments, keep_samples=True, **options)
        return with_noise(found, estimate_noise(found))  # type: ignore[arg-type]

    def pair(self, batch: Any, dtype: torch.dtype) -> tuple[Any, Any]:
        """Inputs and targets of a batch as tensors, the targets checked.

        Args:
            batch: of a loader.
            dtype: of the tensors that floating-point arrays become.
        """
        inputs, targets = as_tensors((self.unpack or split_batch)(batch), dtype)
        return inputs, None if targets is None else self.look.checked(torch.as_tensor(targets))
