"""What is known about a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class RunFacts:
    """Facts about a run, at its end or at any step. Each is optional: what is None is not judged.

    Give what you know; use `dataclasses.replace` to add to the facts of another layer.

    Attributes:
        task: what the network predicts.
        classes: number of classes, or size of the vocabulary.
        n: training examples; tokens for a language model.
        batch_size: examples (tokens) per step.
        step: steps taken so far.
        steps: steps of the whole run.
        lr: learning rate of the last step.
        lr_peak: largest learning rate so far.
        lr_constant_for: how many of the last steps had the same learning rate.
        loss_first: mean loss of the first step, or of the first line of the log.
        loss_start: loss of the first step alone.
        loss_peak: largest mean loss of a line of the log.
        loss_guessing: loss of a prediction that ignores the inputs; for a regression with a Gaussian loss, log(std of
            the targets) + 1.42, summed over outputs. Classifications take log(classes).
        loss_last: mean loss of the last steps.
        loss_growth_with_batch: loss of a batch divided by the mean loss of its two halves: 1 for a mean, 2 for a sum.
        skipped_steps: steps that were dropped because of NaN or infinite gradients.
        nonfinite_weights: weights (or entries of the posterior) that are NaN or infinite.
        ess: lambda.
        hess_init: h0.
        weight_decay: delta.
        beta2: average of h.
        hess_mean: mean of h.
        hess_moved: mean of |h - h0| / (h0 + delta).
        params: trainable weights.
        noise_ratio: root mean square of sigma divided by that of the weights.
        temperature: of the posterior, where it was fitted to validation data.
        samples: posterior samples that predictions are averaged over.
        nll_mean: NLL at the mean of the posterior, on validation data where there are any.
        nll_averaged: NLL averaged over samples, on the same examples.
        nll_gap_error: standard error of nll_averaged - nll_mean over the examples.
        nll_one_sample: mean NLL of a single sample, on the same examples.
        disagreement: mean mutual information between prediction and weights, in nats; for a regression the mean of
            log(total variance / noise variance) / 2.
        batchnorm_layers: BatchNorm layers with running statistics.
        batchnorm_recalibrated: whether their statistics were recomputed at the final weights.
        noise_variance: of the targets around the prediction, mean over examples (regression).
        squared_error: mean squared error of the prediction (regression).
        input_shift: how far test inputs lie from training inputs, in standard deviations; see `metrics.input_shift`.
        nll_validation: NLL on validation data.
        nll_test: NLL on test data, of the same predictor.
        nll_split_error: standard error of nll_test - nll_validation.

    >>> RunFacts(n=1_000, ess=1.0).n
    1000
    """

    task: Literal["classification", "language", "regression"] | None = None
    classes: int | None = None
    n: int | None = None
    batch_size: int | None = None
    step: int | None = None
    steps: int | None = None
    lr: float | None = None
    lr_peak: float | None = None
    lr_constant_for: int | None = None
    loss_first: float | None = None
    loss_start: float | None = None
    loss_peak: float | None = None
    loss_guessing: float | None = None
    loss_last: float | None = None
    loss_growth_with_batch: float | None = None
    skipped_steps: int | None = None
    nonfinite_weights: int | None = None
    ess: float | None = None
    hess_init: float | None = None
    weight_decay: float | None = None
    beta2: float | None = None
    hess_mean: float | None = None
    hess_moved: float | None = None
    params: int | None = None
    noise_ratio: float | None = None
    temperature: float | None = None
    samples: int | None = None
    nll_mean: float | None = None
    nll_averaged: float | None = None
    nll_gap_error: float | None = None
    nll_one_sample: float | None = None
    disagreement: float | None = None
    batchnorm_layers: int | None = None
    batchnorm_recalibrated: bool | None = None
    noise_variance: float | None = None
    squared_error: float | None = None
    input_shift: float | None = None
    nll_validation: float | None = None
    nll_test: float | None = None
    nll_split_error: float | None = None
