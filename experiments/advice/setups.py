"""Healthy and sick setups, and what is wrong with each. Data are chosen by those who run them."""

from __future__ import annotations

from experiments.advice.observing import Setup, named

HEALTHY = {
    "ivon": Setup(),
    "vadamw": Setup(method="vadamw"),
    "batchnorm": Setup(batchnorm=True),
    "a narrow start": Setup(changes=named(hess_init=1.0)),
}
SICK = {
    "lr 50": (Setup(changes=named(lr=50.0)), {"diverged", "hess_runaway"}),
    "no schedule": (Setup(schedule="constant"), {"no_schedule"}),
    "beta2 of a long run": (Setup(changes=named(betas=(0.9, 1 - 1e-7))), {"hess_not_learned"}),
    "ess 1": (Setup(changes=named(ess=1.0)), {"ess_far_from_n"}),
    "ess 1e9": (Setup(changes=named(ess=1e9)), {"ess_far_from_n"}),
    "ess 9,000 n": (Setup(changes=named(ess_per_n=9e3, betas=(0.9, 1 - 1e-4))), {"posterior_collapsed"}),
    "posterior at temperature 100": (Setup(temperature=100.0, samples=256), {"posterior_too_wide"}),
    "summed loss": (Setup(reduction="sum"), {"summed_loss"}),
    "batchnorm as trained": (Setup(batchnorm=True, recalibrate=False), {"batchnorm_not_recalibrated"}),
    "two samples": (Setup(samples=2), {"too_few_samples"}),
    "NaN inputs": (Setup(broken_from=300), {"not_finite"}),
    "raw test inputs": (Setup(raw_test=True), {"test_unlike_training"}),
}
REGRESSION = {
    "regression": (Setup(changes=named(lr=0.1)), set()),
    "no noise variance": (Setup(changes=named(lr=0.1), noise="none"), {"zero_noise_variance"}),
}
