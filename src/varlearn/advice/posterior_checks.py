"""Findings about the posterior and its predictions."""

from __future__ import annotations

from collections.abc import Iterator

from varlearn.advice import thresholds as limit
from varlearn.advice.finding import Finding
from varlearn.advice.run_facts import RunFacts


def batchnorm_not_recalibrated(facts: RunFacts) -> Iterator[Finding]:
    """BatchNorm statistics that belong to other weights than those used to predict."""
    if not facts.batchnorm_layers or facts.batchnorm_recalibrated is not False:
        return
    yield Finding(
        "batchnorm_not_recalibrated",
        "warning",
        f"{facts.batchnorm_layers} BatchNorm layer(s) still have the statistics that were gathered while training.",
        "They were gathered at sampled weights, one sample per step, and do not fit the mean.",
        "Call varlearn.recalibrate_batchnorm(model, train_loader) once before predicting.",
    )


def posterior_too_wide(facts: RunFacts) -> Iterator[Finding]:
    """A posterior whose average predicts worse than its mean."""
    if _is_cold(facts):
        yield Finding(
            "posterior_too_wide",
            "note",
            f"The temperature that fits the validation data best is {facts.temperature:.2g}.",
            "The mean predicts better than the average over samples, so predictions are those of the mean.",
            "Raise ess, or train longer, to get a posterior that is worth averaging over.",
        )
        return
    mean, averaged = facts.nll_mean, facts.nll_averaged
    change = "Lower the temperature with varlearn.calibrate(model, posterior, validation_loader), or raise ess."
    if mean is not None and averaged is not None:
        gap = averaged - mean
        if gap > max(limit.GAP, limit.GAP_ERRORS * (facts.nll_gap_error or 0.0)):
            yield Finding(
                "posterior_too_wide",
                "warning",
                f"The average over samples has NLL {averaged:.4g}, the mean {mean:.4g}.",
                "The posterior is wider than the loss allows, so samples predict worse than the mean.",
                change,
            )
    elif _is_noise(facts):
        yield Finding(
            "posterior_too_wide",
            "warning",
            f"sigma is {facts.noise_ratio:.2g} times as large as the weights.",
            "Samples are mostly noise, so they predict worse than the mean.",
            "Raise ess; start with the number of training examples.",
        )


def posterior_collapsed(facts: RunFacts) -> Iterator[Finding]:
    """A posterior so narrow that all samples are the mean."""
    disagreement, n, noise = facts.disagreement, facts.n, facts.noise_ratio
    if _is_cold(facts):
        return
    if disagreement is not None and n is not None and disagreement * n < limit.DISAGREEMENT:
        what = f"Samples of the posterior disagree by {disagreement:.1g} nats per example."
    elif disagreement is None and noise is not None and noise < limit.NARROW_NOISE:
        what = f"sigma is {noise:.1g} times as large as the weights."
    else:
        return
    yield Finding(
        "posterior_collapsed",
        "warning",
        what,
        "The posterior is so narrow that averaging changes nothing.",
        "Lower ess to 1 to 10 times the number of training examples.",
    )


def too_few_samples(facts: RunFacts) -> Iterator[Finding]:
    """An average over so few samples that more of them would improve it."""
    samples, one, averaged = facts.samples, facts.nll_one_sample, facts.nll_averaged
    if samples is None:
        return
    if samples < limit.FEW_SAMPLES:
        what = f"Predictions are averaged over {samples} sample(s)."
    elif one is not None and averaged is not None:
        # The NLL of an average of S samples exceeds that of many by about c / S; single samples give c.
        excess = (one - averaged) / (samples - 1)
        if not excess > limit.SAMPLE_EXCESS:
            return
        what = f"An average over {samples} samples loses about {excess:.2g} nats per example to the average over many."
    else:
        return
    yield Finding(
        "too_few_samples",
        "warning",
        what,
        "A few samples give a noisy average, which can be worse than the mean.",
        "Use samples=64, or predict at the mean.",
    )


def zero_noise_variance(facts: RunFacts) -> Iterator[Finding]:
    """A regression whose targets are taken to be free of noise."""
    noise, error = facts.noise_variance, facts.squared_error
    if facts.task not in (None, "regression") or noise is None or noise > limit.SMALL_NOISE * (error or 0.0):
        return
    found = f" although the mean squared error is {error:.4g}" if error else ""
    yield Finding(
        "zero_noise_variance",
        "error",
        f"The noise variance of the targets is {noise:.2g}{found}.",
        "Intervals then show the uncertainty of the weights alone, and are far too narrow.",
        "Pass noise_variance=, the mean squared error on validation data, or let the network return (mean, variance).",
    )


def test_data_unlike_training(facts: RunFacts) -> Iterator[Finding]:
    """Test data that come from elsewhere, or were prepared in another way."""
    shift, validation, test = facts.input_shift, facts.nll_validation, facts.nll_test
    if shift is not None and shift > limit.INPUT_SHIFT:
        what = f"The test inputs lie {shift:.2g} standard deviations from the training inputs."
    elif (
        validation is not None
        and test is not None
        and test > limit.SPLIT_RATIO * max(validation, 0.0)
        and test - validation > max(limit.GAP, limit.SPLIT_ERRORS * (facts.nll_split_error or 0.0))
    ):
        what = f"NLL is {test:.4g} on test data and {validation:.4g} on validation data."
    else:
        return
    yield Finding(
        "test_unlike_training",
        "warning",
        what,
        "The test data come from another source, or were scaled or normalized in another way.",
        "Prepare test inputs exactly like training inputs.",
    )


def _is_cold(facts: RunFacts) -> bool:
    """Whether calibration has replaced the average by the mean."""
    return facts.temperature is not None and facts.temperature < limit.TEMPERATURE


def _is_noise(facts: RunFacts) -> bool:
    """Whether sigma hides the weights. Weights near 0 alone do not count: ess must be small, too."""
    if facts.noise_ratio is None or facts.params is None or facts.ess is None:
        return False
    return facts.noise_ratio > limit.WIDE_NOISE and facts.ess < facts.params
