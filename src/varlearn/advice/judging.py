"""From facts to findings."""

from __future__ import annotations

from varlearn.advice import posterior_checks, training_checks
from varlearn.advice.finding import Finding
from varlearn.advice.run_facts import RunFacts

CHECKS = (
    training_checks.not_finite,  # first: NaN makes all other facts meaningless
    training_checks.summed_loss,
    training_checks.diverged,
    training_checks.hess_runaway,
    training_checks.no_schedule,
    training_checks.ess_far_from_n,
    training_checks.hess_not_learned,
    posterior_checks.batchnorm_not_recalibrated,
    posterior_checks.posterior_too_wide,
    posterior_checks.posterior_collapsed,
    posterior_checks.too_few_samples,
    posterior_checks.zero_noise_variance,
    posterior_checks.test_data_unlike_training,
)
_ORDER = ("error", "warning", "note")


def findings(facts: RunFacts) -> tuple[Finding, ...]:
    """Everything that the facts show to be wrong: errors first, then warnings, then notes.

    Args:
        facts: about one run; a fact that is None is not judged.

    >>> [found.code for found in findings(RunFacts(n=1_000, ess=1.0))]
    ['ess_far_from_n']
    >>> findings(RunFacts(n=1_000, ess=1_000.0))
    ()
    """
    found: list[Finding] = []
    for check in CHECKS:
        found += check(facts)
        if found and check is training_checks.not_finite:
            break
    return tuple(sorted(found, key=lambda finding: _ORDER.index(finding.severity)))
