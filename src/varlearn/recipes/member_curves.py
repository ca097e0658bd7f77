"""Ensembles of 1, 2, ... members, from the saved predictions of single runs; and how many members a method is worth."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from varlearn.prediction import Predictions, log_average, score, score_ood
from varlearn.train import load_run_predictions

MOST_SUBSETS = 10
IN_DOMAIN = ("accuracy", "nll", "scaled_nll", "ece", "brier")

Sets = Mapping[str, Predictions]


def averaged_sets(folder: Path) -> dict[str, Predictions]:
    """The averaged predictions of a run, by data set."""
    return {name: found["averaged"] for name, found in load_run_predictions(folder).items()}


def mixed(members: Sequence[Sets]) -> dict[str, Predictions]:
    """The predictions of the ensemble with equal weights, exactly: the average of its members' predictives.

    >>> def alone(p):
    ...     return {"test": Predictions(torch.tensor([[p, 1 - p]]).log(), None, torch.zeros(1), torch.ones(1))}
    >>> mixed([alone(0.2), alone(0.6)])["test"].log_probs.exp()
    tensor([[0.4000, 0.6000]])
    """
    shares = torch.full((len(members),), 1.0 / len(members), dtype=torch.float64)
    found = {}
    for name in members[0]:
        parts = [member[name] for member in members]
        log_probs = log_average(torch.stack([part.log_probs for part in parts]), shares.log())
        entropy = torch.stack([part.expected_entropy for part in parts]).mean(0)
        weights = torch.cat([part.sample_weights for part in parts]) / len(parts)
        found[name] = Predictions(log_probs, parts[0].targets, entropy, weights)
    return found


def scores_of(sets: Sets) -> dict[str, Any]:
    """Scores as `metrics.json` has them: of the test set, and "ood" by data set.

    >>> half = Predictions(torch.tensor([[0.5, 0.5]]).log(), torch.tensor([0]), torch.zeros(1), torch.ones(1))
    >>> round(scores_of({"test": half})["nll"], 4)
    0.6931
    """
    test = sets["test"]
    others = {name: found for name, found in sets.items() if name not in ("test", "validation")}
    return score(test) | {"ood": {name: score_ood(test, other) for name, other in others.items()}}


def member_curve(members: Sequence[Sets]) -> list[dict[str, Any]]:
    """For each number of members, the scores of the ensemble: the mean over at most ten subsets of that size.

    Args:
        members: predictions of single runs.

    Returns:
        Rows with "members", "subsets", the scores of the test set, and "auroc" by data set out of the domain.
    """
    rows = []
    for size in range(1, len(members) + 1):
        subsets = list(itertools.islice(itertools.combinations(members, size), MOST_SUBSETS))
        scored = [scores_of(mixed(subset)) for subset in subsets]
        row: dict[str, Any] = {"members": size, "subsets": len(subsets)}
        for key in IN_DOMAIN:
            row[key] = _mean([math.inf if one[key] is None else one[key] for one in scored])
        row["auroc"] = {name: _mean([one["ood"][name]["auroc"] for one in scored]) for name in scored[0]["ood"]}
        rows.append(row)
    return rows


def ensemble_equivalent(nll: float, curve: Sequence[float]) -> float:
    """How many members a deep ensemble needs for this NLL (Ashukha et al., 2020), interpolated linearly.

    Args:
        nll: of the method; after temperature scaling, as the curve's.
        curve: NLL of deep ensembles of 1, 2, ... members. Only its decreasing beginning is read.

    Returns:
        At least 1, which also stands for worse than one member; infinity for better than the largest ensemble.

    >>> (
    ...     ensemble_equivalent(0.45, [0.6, 0.5, 0.4]),
    ...     ensemble_equivalent(0.7, [0.6, 0.5]),
    ...     ensemble_equivalent(0.1, [0.6]),
    ... )
    (2.5, 1.0, inf)
    """
    if not curve or nll >= curve[0]:
        return 1.0
    for members, (before, after) in enumerate(itertools.pairwise(curve), 1):
        if after >= before:
            break
        if nll >= after:
            return members + (before - nll) / (before - after)
    return math.inf


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
