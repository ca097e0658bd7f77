"""The posterior that a run saves: what its method learned, where it comes from, and its temperature."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import nn

from varlearn.data.examples import Examples
from varlearn.posterior import DiagGaussian, LowRankGaussian
from varlearn.prediction import calibrate
from varlearn.prediction.predictions_file import AnyPredictions
from varlearn.train.build import build_batches
from varlearn.train.evaluate import predict_task
from varlearn.train.splits import Splits
from varlearn.train.training import Training
from varlearn.types import Posterior


def final_posterior(training: Training, splits: Splits) -> Posterior:
    """What a finished training has learned; where there are validation examples, at the temperature that fits them.

    The temperature is fitted with the samples and the seed that predictions of the run have. Called in one process.

    Args:
        training: the run, with its final weights.
        splits: its examples.
    """
    learned, run = training.posterior(), training.run
    if isinstance(learned, (DiagGaussian, LowRankGaussian)):
        facts = training.facts
        origin = replace(learned.origin, method=run.optim.name, n=facts.n, batch_size=facts.batch_size)
        learned = replace(learned, origin=origin)
    if splits.name == "test" or not hasattr(learned, "at_temperature"):
        return learned
    return _calibrated(training, learned, splits.measured)


def _calibrated(training: Training, learned: Posterior, validation: Examples) -> Posterior:
    run, task, method = training.run, training.task, training.method

    def by(model: nn.Module, posterior: Posterior, *arguments: Any) -> AnyPredictions:
        return predict_task(task, model, method.predictor(posterior), *arguments, progress=False)

    batches = build_batches(run, validation, train=False)
    return calibrate(training.model, learned, batches, run.evaluate.samples, run.seed, by=by)
