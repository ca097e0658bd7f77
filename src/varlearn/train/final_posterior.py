"""The posterior that a run saves: what its method learned, where it comes from, and its temperature."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from torch import nn

from varlearn.methods import Batch
from varlearn.posterior import DiagGaussian, KroneckerGaussian, LowRankGaussian
from varlearn.prediction import calibrate
from varlearn.prediction.predictions_file import AnyPredictions
from varlearn.train.config import Run
from varlearn.train.evaluate import predict_task
from varlearn.train.training import Training
from varlearn.types import Posterior


def final_posterior(run: Run, training: Training, validation: Iterable[Batch] | None) -> Posterior:
    """What a finished training has learned; where there are validation examples, at the temperature that fits them.

    The temperature is fitted with the samples and the seed that predictions of the run have. Called in one process.

    Args:
        run: its settings.
        training: the run, with its final weights.
        validation: held-out examples, or None.
    """
    learned = learned_posterior(training)
    if validation is None or not hasattr(learned, "at_temperature"):
        return learned

    def by(model: nn.Module, posterior: Posterior, *arguments: Any) -> AnyPredictions:
        return predict_task(
            training.facts.task, model, training.method.predictor(posterior), *arguments, progress=False
        )

    return calibrate(training.model, learned, validation, run.evaluate.samples, run.seed, by=by)


def learned_posterior(training: Training) -> Posterior:
    """What a finished training has learned, at temperature 1, with its origin."""
    learned, facts = training.posterior(), training.facts
    if not isinstance(learned, (DiagGaussian, LowRankGaussian, KroneckerGaussian)):
        return learned
    origin = replace(learned.origin, method=training.method.name, n=facts.n, batch_size=facts.batch_size)
    return replace(learned, origin=origin)
