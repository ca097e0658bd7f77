"""From facts to findings."""

from __future__ import annotations

from dataclasses import replace

from varlearn.advice import posterior_checks, training_checks
from varlearn.advice.finding import Finding
from varlearn.advice.run_facts import RunFacts

CHECKS = (
    training_checks.not_finite,
    training_checks.ess_far_from_n,
    training_checks.summed_loss,
    training_checks.diverged,
    training_checks.hess_runaway,
    training_checks.no_schedule,
    training_checks.hess_not_learned,
    posterior_checks.batchnorm_not_recalibrated,
    posterior_checks.posterior_too_wide,
    posterior_checks.posterior_collapsed,
    posterior_checks.too_few_samples,
    posterior_checks.zero_noise_variance,
    posterior_checks.test_data_unlike_training,
)

# A finding -> those that usually follow from it. They are left out: one cause, one change.
_POSTERIOR = frozenset({"posterior_too_wide", "posterior_collapsed", "too_few_samples"})
EXPLAINS = {
    "ess_far_from_n": _POSTERIOR | {"diverged", "hess_runaway"},
    "summed_loss": _POSTERIOR | {"diverged", "hess_runaway"},
    "diverged": _POSTERIOR,
    "hess_runaway": _POSTERIOR,
    "posterior_too_wide": {"too_few_samples"},
}
_ORDER = ("error", "warning", "note")


def findings(facts: RunFacts) -> tuple[Finding, ...]:
    """What the facts show to be wrong: errors first, then warnings, then notes.

    A finding that follows from another one is left out. A note that explains something worse becomes a warning.

    Args:
        facts: about one run; a fact that is None is not judged.

    >>> [found.code for found in findings(RunFacts(n=1_000, ess=1.0))]
    ['ess_far_from_n']
    >>> findings(RunFacts(n=1_000, ess=1_000.0))
    ()
    """
    found = {finding.code: finding for check in CHECKS for finding in check(facts)}
    if "not_finite" in found:  # NaN makes all other facts meaningless
        return (found["not_finite"],)
    for code, followers in EXPLAINS.items():
        if code in found and followers & found.keys():
            if found[code].severity == "note":
                found[code] = replace(found[code], severity="warning")
            found = {other: finding for other, finding in found.items() if other not in followers}
    return tuple(sorted(found.values(), key=lambda finding: _ORDER.index(finding.severity)))
