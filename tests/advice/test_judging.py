"""Each finding on both sides of its threshold; that nothing is judged that is not known."""

import math
import subprocess
import sys
from dataclasses import fields, replace

import pytest

from varlearn.advice import RunFacts, findings
from varlearn.advice.judging import CHECKS

HEALTHY = RunFacts(
    task="classification",
    classes=10,
    n=1_000,
    batch_size=50,
    step=1_000,
    steps=1_000,
    lr=1e-4,
    lr_peak=0.5,
    lr_constant_for=1,
    loss_first=2.3,
    loss_last=0.05,
    loss_start=2.4,
    loss_peak=2.5,
    loss_growth_with_batch=1.0,
    skipped_steps=0,
    nonfinite_weights=0,
    ess=10_000.0,
    hess_init=0.1,
    weight_decay=1e-3,
    beta2=0.999,
    hess_mean=0.02,
    hess_moved=0.6,
    params=17_000,
    noise_ratio=0.3,
    temperature=0.8,
    samples=64,
    nll_mean=0.09,
    nll_averaged=0.08,
    nll_gap_error=0.002,
    nll_one_sample=0.12,
    disagreement=0.03,
    batchnorm_layers=3,
    batchnorm_recalibrated=True,
    input_shift=0.05,
    nll_validation=0.08,
    nll_test=0.09,
    nll_split_error=0.01,
)
NO_BATCH_TEST = replace(HEALTHY, loss_growth_with_batch=None)
MISSING_NLL = replace(HEALTHY, nll_mean=None)
REGRESSION = replace(HEALTHY, task="regression", classes=None, noise_variance=0.2, squared_error=0.25)
EARLY = replace(REGRESSION, step=40, loss_first=10.0, loss_last=4.0, loss_guessing=2.9)  # its noise variance follows

SICK = [
    ("not_finite", HEALTHY, {"loss_last": math.nan}),
    ("not_finite", HEALTHY, {"nonfinite_weights": 3}),
    ("not_finite", HEALTHY, {"skipped_steps": 21}),
    ("summed_loss", HEALTHY, {"loss_growth_with_batch": 2.0}),
    ("summed_loss", NO_BATCH_TEST, {"loss_first": 115.0, "loss_last": 2.5}),
    ("diverged", HEALTHY, {"loss_last": 17_900.0}),
    ("diverged", HEALTHY, {"loss_first": 9_000.0, "loss_last": 400.0}),
    ("diverged", HEALTHY, {"nll_mean": 11.0, "nll_averaged": 10.0, "nll_one_sample": None}),
    ("diverged", REGRESSION, {"loss_first": -1.0, "loss_last": 0.5}),
    ("diverged", REGRESSION, {"loss_first": 10.0, "loss_last": 4.0, "loss_guessing": 2.9}),
    ("diverged", HEALTHY, {"loss_peak": 448.0}),
    ("hess_runaway", HEALTHY, {"hess_mean": 475_205.0}),
    ("hess_not_learned", HEALTHY, {"hess_moved": 0.01}),
    ("no_schedule", HEALTHY, {"lr": 0.5, "lr_constant_for": 1_000}),
    ("no_schedule", HEALTHY, {"lr": 0.5, "lr_constant_for": 900, "steps": None}),
    ("no_schedule", HEALTHY, {"lr": 0.4, "lr_constant_for": None}),
    ("ess_far_from_n", HEALTHY, {"ess": 1.0}),
    ("ess_far_from_n", HEALTHY, {"ess": 1e9}),
    ("batchnorm_not_recalibrated", HEALTHY, {"batchnorm_recalibrated": False}),
    ("posterior_too_wide", HEALTHY, {"nll_averaged": 0.2, "nll_one_sample": 0.3}),
    ("posterior_too_wide", MISSING_NLL, {"noise_ratio": 30.0, "ess": 100.0}),
    ("posterior_too_wide", HEALTHY, {"temperature": 0.0, "nll_averaged": 0.09, "disagreement": 0.0}),
    ("posterior_collapsed", HEALTHY, {"disagreement": 1e-7}),
    ("posterior_collapsed", HEALTHY, {"disagreement": None, "noise_ratio": 1e-7}),
    ("too_few_samples", HEALTHY, {"samples": 1}),
    ("too_few_samples", HEALTHY, {"samples": 4, "nll_one_sample": 0.3}),
    ("too_few_samples", replace(HEALTHY, nll_one_sample=None), {"samples": 2}),
    ("zero_noise_variance", REGRESSION, {"noise_variance": 0.0}),
    ("test_unlike_training", HEALTHY, {"input_shift": 3.0}),
    ("test_unlike_training", HEALTHY, {"nll_test": 0.5}),
]
HARMLESS = [
    {"skipped_steps": 5},
    {"loss_peak": 20.0},
    {"loss_first": 4.0, "loss_growth_with_batch": 1.02},
    {"hess_mean": 1.0},
    {"step": 50, "steps": 1_000, "hess_moved": 0.001},
    {"lr": 0.5, "step": 300, "lr_constant_for": 300},  # a third of the run: the schedule may come
    {"lr": 0.5, "lr_constant_for": 1_000, "step": 50, "steps": 50},
    {"ess": 1_000.0},
    {"batchnorm_recalibrated": None},
    {"batchnorm_layers": 0, "batchnorm_recalibrated": False},
    {"nll_averaged": 0.1},
    {"nll_averaged": 0.2, "nll_gap_error": 0.2},
    {"noise_ratio": 30.0, "ess": 100.0},  # the NLL decides where it is known
    {"noise_ratio": 30.0, "nll_mean": None, "params": 2, "ess": 100.0},  # weights near 0
    {"noise_ratio": 0.02, "hess_moved": 0.0},  # as in finetuning
    {"samples": 8, "nll_one_sample": None},
    {"samples": 8},
    {"nll_test": 0.5, "nll_split_error": 0.2},
]


def codes(facts: RunFacts) -> list[str]:
    return [finding.code for finding in findings(facts)]


@pytest.mark.parametrize("facts", [HEALTHY, NO_BATCH_TEST, REGRESSION, EARLY, RunFacts()])
def test_a_healthy_run_has_no_findings(facts: RunFacts) -> None:
    assert codes(facts) == []


@pytest.mark.parametrize(("code", "base", "change"), SICK)
def test_a_sick_run_has_its_finding_alone(code: str, base: RunFacts, change: dict[str, object]) -> None:
    assert codes(replace(base, **change)) == [code]


@pytest.mark.parametrize("change", HARMLESS, ids=str)
def test_harmless_facts_are_not_blamed(change: dict[str, object]) -> None:
    assert codes(replace(HEALTHY, **change)) == []


@pytest.mark.parametrize(("code", "base", "change"), SICK)
def test_a_finding_names_its_number_and_one_change(code: str, base: RunFacts, change: dict[str, object]) -> None:
    (finding,) = findings(replace(base, **change))
    assert any(character.isdigit() for character in finding.sentence) or "nan" in finding.sentence
    for words in (finding.sentence, finding.cause, finding.change):
        assert words.endswith(".")
        assert words[0].isupper() or words.startswith(("h ", "ess", "sigma")) or words[0].isdigit()
    assert str(finding).startswith(finding.severity)


def test_every_check_is_reached() -> None:
    assert len({code for code, _, _ in SICK}) == len(CHECKS)


@pytest.mark.parametrize("name", [item.name for item in fields(RunFacts)])
def test_an_unknown_fact_is_not_judged(name: str) -> None:
    assert codes(replace(HEALTHY, **{name: None})) == []


def test_errors_come_before_warnings() -> None:
    found = findings(replace(HEALTHY, ess=1e9, input_shift=3.0, loss_growth_with_batch=2.0))
    assert [finding.severity for finding in found] == ["error", "warning", "note"]


@pytest.mark.parametrize(
    ("cause", "change", "consequences"),
    [
        ("ess_far_from_n", {"ess": 1.0}, {"loss_last": 50.0, "nll_averaged": 3.0, "samples": 2}),
        ("ess_far_from_n", {"ess": 1e9}, {"hess_mean": 1e3, "disagreement": 0.0}),
        ("summed_loss", {"loss_growth_with_batch": 2.0}, {"loss_last": 50.0, "hess_mean": 1e3, "disagreement": 0.0}),
        ("diverged", {"loss_last": 50.0}, {"nll_averaged": 3.0, "samples": 1}),
        ("not_finite", {"nonfinite_weights": 1}, {"ess": 1.0, "samples": 1, "input_shift": 9.0}),
    ],
)
def test_consequences_of_a_cause_are_left_out(
    cause: str, change: dict[str, object], consequences: dict[str, object]
) -> None:
    assert codes(replace(HEALTHY, **change, **consequences)) == [cause]


def test_a_note_that_explains_something_worse_is_a_warning() -> None:
    (note,) = findings(replace(HEALTHY, ess=1e9))
    (warning,) = findings(replace(HEALTHY, ess=1e9, disagreement=0.0))
    assert (note.severity, warning.severity) == ("note", "warning")


def test_advice_imports_no_torch() -> None:
    code = "import sys, varlearn.advice; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=600).returncode == 0
