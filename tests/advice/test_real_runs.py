"""Advice about real runs, healthy and sick; the thresholds were set on other data (`experiments/advice`)."""

from dataclasses import replace

import pytest

from experiments.advice.observing import Setup, observe, on
from experiments.advice.setups import HEALTHY, REGRESSION, SICK
from varlearn.advice import findings

STEPS = 700


def codes(setup: Setup) -> set[str]:
    return {finding.code for finding in findings(observe(replace(setup, steps=STEPS, seed=2)))}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_run_gets_no_advice(name: str) -> None:
    assert codes(on("digits", HEALTHY[name])) == set()


@pytest.mark.filterwarnings("ignore:The learning rate is still:UserWarning")
@pytest.mark.parametrize("name", SICK)
def test_a_sick_run_is_told_what_is_wrong_and_nothing_else(name: str) -> None:
    setup, expected = SICK[name]
    assert codes(on("digits", setup)) == expected


@pytest.mark.parametrize("name", REGRESSION)
def test_regressions(name: str) -> None:
    setup, expected = REGRESSION[name]
    assert codes(on("friedman", setup)) == expected
