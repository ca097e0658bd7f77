"""A grid of settings: the runs behind it, and the best of them on validation data or by leave-one-out."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from varlearn import train
from varlearn.files.checked_json import read_json
from varlearn.recipes.jobs import Job
from varlearn.train.config import Run

HELD_OUT = 0.1  # of the training examples, where a run has no validation data
Criterion = Literal["validation", "loo"]
TITLES: dict[Criterion, str] = {"validation": "validation NLL", "loo": "leave-one-out loss"}


@dataclass(frozen=True)
class GridPoint:
    """One combination of settings, and its runs: one per seed.

    Attributes:
        words: setting -> value as it was given, e.g. "optim.lr" -> "0.1".
        jobs: the runs.
        by: what they are judged by: "validation" or "loo".
    """

    words: dict[str, str]
    jobs: tuple[Job, ...]
    by: Criterion = "validation"

    def nll(self) -> float | None:
        """NLL on validation data, or of training examples left out, mean over the seeds; None until all are there."""
        if not all(job.finished for job in self.jobs):
            return None
        if self.by == "loo":
            if not all(train.RunFolder(job.out).sensitivity.exists() for job in self.jobs):
                return None
            losses = [train.load_run_sensitivity(job.out).values["loo_loss"] for job in self.jobs]
            return statistics.fmean(loss.double().mean().item() for loss in losses)
        scores = [read_json(train.RunFolder(job.out).metrics)["validation"]["averaged"]["nll"] for job in self.jobs]
        return statistics.fmean(float(score) for score in scores)


def combinations(values: Mapping[str, Sequence[str]]) -> list[dict[str, str]]:
    """All combinations of values, the last setting changing fastest.

    >>> combinations({"a": ["1", "2"], "b": ["3"]})
    [{'a': '1', 'b': '3'}, {'a': '2', 'b': '3'}]
    """
    return [dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())]


def point(words: dict[str, str], run: Run, seeds: int, out: Path, by: Criterion = "validation") -> GridPoint:
    """The runs of one combination, each in its own folder; with validation data if they are judged by these.

    >>> from varlearn.recipes import recipe
    >>> [job.out.name for job in point({"optim.lr": "1"}, recipe("digits-ivon"), 2, Path("runs")).jobs]
    ['optim.lr=1-seed0', 'optim.lr=1-seed1']
    """
    if by == "validation" and not run.data.validation:
        run = replace(run, data=replace(run.data, validation=HELD_OUT))
    name = ",".join(f"{setting}={value}" for setting, value in words.items()).replace("/", "_") or "as-it-is"
    runs = [replace(run, seed=run.seed + seed) for seed in range(seeds)]
    return GridPoint(words, tuple(Job(one, {}, out / f"{name}-seed{one.seed}") for one in runs), by)


def best(points: Sequence[GridPoint]) -> GridPoint | None:
    """The point with the lowest finite NLL; None if there is none yet."""
    scored = [(nll, place) for place, point in enumerate(points) if (nll := point.nll()) is not None]
    finite = [pair for pair in scored if math.isfinite(pair[0])]
    return points[min(finite)[1]] if finite else None


def results(points: Sequence[GridPoint]) -> list[dict[str, Any]]:
    """What is known of each point, for JSON: its settings, its folders, and its NLL or None."""
    rows = []
    for one in points:
        nll = one.nll()
        known = nll if nll is None or math.isfinite(nll) else str(nll)
        rows.append({"settings": one.words, "runs": [job.out.name for job in one.jobs], f"{one.by}_nll": known})
    return rows
