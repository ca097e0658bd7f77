"""The page in three sentences: how good, how calibrated, what to do next. Then every finding of the advice."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from varlearn import metrics
from varlearn.advice import Finding
from varlearn.report.axis_scale import short
from varlearn.report.series import Group, Series, mean_and_spread

CLEAR = 2.0  # standard errors by which two means must differ to be called different
SAME = 0.005  # relative difference of two NLLs that is called none
CALIBRATED = 0.01  # difference of mean confidence and accuracy that is called none
SEVERITIES = ("error", "warning", "note")


def verdict(groups: Sequence[Group], series: Sequence[Series], *, compared: bool = True) -> str:
    """HTML of the first part of the page.

    Args:
        groups: of runs.
        series: rows of the table.
        compared: whether all runs are about the same data.
    """
    found = merged_findings(groups)
    sentences = [*scores_in_words(series, compared=compared), next_step(groups, best_of(series) if compared else None)]
    findings = "".join(
        f'<li class="{escape(finding.severity)}"><b>{escape(finding.severity.capitalize())}.</b>'
        f"{escape(finding.sentence)} {escape(finding.cause)} <b>{escape(finding.change)}</b>"
        f' <span class="note">({escape(where)})</span></li>'
        for finding, where in found
    )
    listed = f'<ul class="findings">{findings}</ul>' if findings else ""
    words = "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences if sentence)
    return f'<section class="verdict" aria-labelledby="verdict"><h2 id="verdict">Verdict</h2>{words}{listed}</section>'


def scores_in_words(series: Sequence[Series], *, compared: bool = True) -> list[str]:
    """Two sentences: which series has the lowest NLL, and how calibrated it is."""
    scored = [one for one in series if one.values("nll")]
    if not scored:
        return ["These runs have no scores yet: predict and score them first."]
    if not compared:
        return ["The runs use different data, so their scores are not compared."]
    best = min(scored, key=_nll)
    rival = min((one for one in scored if one.group is not best.group), key=_nll, default=None)
    return [_result(best, rival), _uncertainty(best, rival, scored)]


def next_step(groups: Sequence[Group], best: Series | None) -> str:
    """The change that the most severe finding asks for, in the group of the best series first.

    Args:
        groups: of runs.
        best: the series with the lowest NLL; None where the groups are not compared.
    """
    if not any(run.facts or run.findings for group in groups for run in group.runs):
        return ""
    own = _serious([best.group] if best else groups)
    if own:
        return f"Next: {own[0].change}"
    others = [group.label for group in groups if _serious([group])]
    if not others:
        return "No check found a problem with these runs."
    count = f"{others[0]} has" if len(others) == 1 else f"{len(others)} others have"
    return f"No check found a problem with the best runs; {count} warnings, see below."


def best_of(series: Sequence[Series]) -> Series | None:
    """The series with the lowest mean NLL."""
    return min((one for one in series if one.values("nll")), key=_nll, default=None)


def _serious(groups: Sequence[Group]) -> list[Finding]:
    return [finding for finding, _ in merged_findings(groups) if finding.severity != "note"]


def merged_findings(groups: Sequence[Group]) -> list[tuple[Finding, str]]:
    """Each finding once, with the groups in which it was made; the most severe first."""
    places: dict[str, tuple[Finding, dict[str, int]]] = {}
    for group in groups:
        for run in group.runs:
            for finding in run.findings:
                where = places.setdefault(finding.code, (finding, {}))[1]
                where[group.label] = where.get(group.label, 0) + 1
    sizes = {group.label: len(group.runs) for group in groups}

    def words(label: str, count: int) -> str:
        return label if sizes[label] == 1 else f"{label}, {count} of {sizes[label]} seeds"

    found = [(first, "; ".join(words(*item) for item in where.items())) for first, where in places.values()]
    return sorted(found, key=lambda pair: SEVERITIES.index(pair[0].severity) if pair[0].severity in SEVERITIES else 9)


def _result(best: Series, rival: Series | None) -> str:
    """Who has the lowest NLL, and whether the next is clearly worse."""
    values, further = best.values("nll"), _further(best)
    if rival is None:
        return f"{best.label} has an NLL of {_with_spread(values)} on {_examples(best)}{further}."
    others = rival.values("nll")
    gap, error = _nll(rival) - _nll(best), _standard_error(values, others)
    if error is None:
        close = " (one seed each: this may be chance)"
    else:
        close = "; the difference is within the noise of the seeds" if gap < CLEAR * error else ""
    seeds = f", mean of {len(values)} seeds" if len(values) > 1 else ""
    return (
        f"{best.label} has the lowest NLL on {_examples(best)}{seeds}: {_with_spread(values)}{further}, before "
        f"{rival.label} with {_with_spread(others)}{close}."
    )


def _further(one: Series) -> str:
    """The score that people ask for first, in words."""
    for key, words, factor, digits in (
        ("accuracy", " at {}% accuracy", 100.0, 1),
        ("perplexity", ", a perplexity of {}", 1.0, 2),
        ("rmse", " at an RMSE of {}", 1.0, 3),
    ):
        if values := one.values(key):
            return words.format(f"{factor * mean_and_spread(values)[0]:.{digits}f}")
    return ""


def _uncertainty(best: Series, rival: Series | None, scored: Sequence[Series]) -> str:
    """Whether confidence can be believed, and what averaging over samples does."""
    calibration, averaging = _calibration(best, rival), _averaging(best, scored)
    if calibration and averaging:
        return f"{calibration}, and {averaging}."
    return f"{calibration or averaging[:1].upper() + averaging[1:]}." if calibration or averaging else ""


def _averaging(best: Series, scored: Sequence[Series]) -> str:
    """What averaging over samples does to the NLL of the mean, in the group of the best series."""
    kinds = {one.kind: one for one in scored if one.group is best.group}
    if len(kinds) < 2:
        return ""
    mean, averaged = _nll(kinds["mean"]), _nll(kinds["averaged"])
    samples = max((len(p.sample_weights) for p in kinds["averaged"].predictions()), default=0)
    over = f"over {samples} samples " if samples else ""
    if abs(averaged - mean) < SAME * abs(mean):
        return f"averaging {over}leaves the NLL of its mean as it is ({short(mean)})"
    verb = "lowers" if averaged < mean else "raises"
    return f"averaging {over}{verb} the NLL of its mean from {short(mean)} to {short(averaged)}"


def _calibration(best: Series, rival: Series | None) -> str:
    if best.values("coverage90"):
        text = f"Its 90% intervals cover {_share(best, 'coverage90')} of the targets"
        return (
            f"{text} ({rival.label}: {_share(rival, 'coverage90')})" if rival and rival.values("coverage90") else text
        )
    found, other = _confidence(best), _confidence(rival) if rival else None
    if found is None:
        return ""
    confidence, accuracy = found
    gap = confidence - accuracy
    words = "matches" if abs(gap) < CALIBRATED else "is above" if gap > 0 else "is below"
    text = f"Its mean confidence of {100 * confidence:.1f}% {words} its accuracy of {100 * accuracy:.1f}%"
    if rival and other:
        text += f" ({rival.label}: {100 * other[0]:.1f}% sure, {100 * other[1]:.1f}% right)"
    return text


def _confidence(one: Series) -> tuple[float, float] | None:
    """Mean confidence and accuracy of a classifier, over all seeds."""
    pairs = [pair for run in one.group.runs if (pair := run.classified(one.kind)) is not None and pair[1] is not None]
    accuracy = one.values("accuracy")
    if not pairs or not accuracy:
        return None
    confidences = [metrics.max_log_prob(log_probs).exp().mean().item() for log_probs, _ in pairs]
    return sum(confidences) / len(confidences), mean_and_spread(accuracy)[0]


def _examples(one: Series) -> str:
    split = one.group.first.config.get("data", {}).get("test", "test")
    for unit in ("examples", "tokens"):
        if counts := one.values(unit):
            return f"{counts[0]:,.0f} {split} {unit}"
    return f"the {split} set"


def _nll(one: Series) -> float:
    return mean_and_spread(one.values("nll"))[0]


def _share(one: Series, key: str) -> str:
    return f"{100 * mean_and_spread(one.values(key))[0]:.0f}%"


def _with_spread(values: Sequence[float]) -> str:
    mean, spread = mean_and_spread(values)
    return short(mean) if spread is None else f"{short(mean)} ± {short(spread, 2)}"


def _standard_error(values: Sequence[float], others: Sequence[float]) -> float | None:
    """Of the difference of two means; None where one has a single seed."""
    spreads = [mean_and_spread(values)[1], mean_and_spread(others)[1]]
    if None in spreads:
        return None
    return math.sqrt(spreads[0] ** 2 / len(values) + spreads[1] ** 2 / len(others))  # type: ignore[operator]
