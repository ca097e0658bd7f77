"""Runs that differ in their seed alone belong together, and each method has one colour on the whole page."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from varlearn.methods import METHODS
from varlearn.prediction.predictions_file import AnyPredictions
from varlearn.report.run_results import RunResults

FIRST_COLORS = {method: color for color, method in enumerate([*METHODS][:4])}  # the same on every page
COLORS = 8  # in the style sheet
MOST_IN_ORDER = 6  # groups; more are sorted
NOT_COMPARED = ("seed", "recipe", "scale")  # settings that make no difference between two methods


@dataclass(frozen=True, eq=False)
class Group:
    """Runs with the same settings and different seeds.

    Attributes:
        label: how the page writes it.
        color: number of its method's colour.
        runs: at least one.
    """

    label: str
    color: int
    runs: tuple[RunResults, ...]

    @property
    def first(self) -> RunResults:
        """The run that figures of single runs show."""
        return self.runs[0]


@dataclass(frozen=True, eq=False)
class Series:
    """One kind of prediction of a group: a row of the table, a line of a figure."""

    group: Group
    kind: str

    @property
    def label(self) -> str:
        """How the page writes it."""
        return f"{self.group.label} at the mean" if self.dash else self.group.label

    @property
    def color(self) -> int:
        """Number of its method's colour."""
        return self.group.color

    @property
    def dash(self) -> int:
        """1 for the mean of a posterior that is also averaged over: a dashed line in its method's colour."""
        return int(self.kind == "mean" and len(self.group.first.kinds) > 1)

    def values(self, *keys: str, split: str = "test") -> list[float]:
        """A number of `metrics.json` of each run that has it, e.g. "nll" or "ood", "noise", "auroc"."""
        found = []
        for run in self.group.runs:
            value: Any = (run.metrics if split == "test" else run.metrics.get(split, {})).get(self.kind, {})
            for key in keys:
                value = value.get(key) if isinstance(value, Mapping) else None
            if isinstance(value, (int, float)) and math.isfinite(value):
                found.append(float(value))
        return found

    def predictions(self, examples: str = "test") -> list[AnyPredictions]:
        """Those of each run that has them."""
        found = [run.predictions.get(f"{examples}/{self.kind}") for run in self.group.runs]
        return [one for one in found if one is not None]


def grouped(runs: Sequence[RunResults]) -> list[Group]:
    """Runs with equal settings apart from the seed, in the order in which they were given.

    >>> runs = [RunResults(f"{name}-{seed}", name) for name in ("ivon", "adamw") for seed in range(2)]
    >>> [(group.label, group.color, len(group.runs)) for group in grouped(runs)]
    [('IVON', 0, 2), ('AdamW', 1, 2)]
    """
    together: dict[str, list[RunResults]] = {}
    for run in runs:
        together.setdefault(json.dumps([run.method or run.name, _settings(run)], sort_keys=True), []).append(run)
    colors = _colors([members[0].method or members[0].name for members in together.values()])
    labels = _labels([members[0] for members in together.values()])
    return [
        Group(label, colors[members[0].method or members[0].name], tuple(members))
        for label, members in zip(labels, together.values(), strict=True)
    ]


def in_order(groups: Sequence[Group]) -> list[Group]:
    """The groups as they were given; if there are many, by the lowest NLL of each."""
    if len(groups) <= MOST_IN_ORDER:
        return list(groups)

    def lowest(group: Group) -> float:
        nlls = [found for kind in group.first.kinds if (found := Series(group, kind).values("nll"))]
        return min((mean_and_spread(found)[0] for found in nlls), default=math.inf)

    return sorted(groups, key=lowest)


def all_series(groups: Sequence[Group]) -> list[Series]:
    """The kinds of prediction of all groups."""
    return [Series(group, kind) for group in groups for kind in group.first.kinds]


def best_of_each_method(series: Sequence[Series]) -> list[Series]:
    """For each method, the series with the lowest mean NLL; the means of posteriors are left out."""
    best: dict[str, Series] = {}
    for one in series:
        method, nll = one.group.first.label, one.values("nll")
        if one.dash or (method in best and not nll):
            continue
        if method not in best or mean_and_spread(nll)[0] < mean_and_spread(best[method].values("nll") or [math.inf])[0]:
            best[method] = one
    return list(best.values())


def mean_and_spread(values: Sequence[float]) -> tuple[float, float | None]:
    """The mean, and the standard deviation over seeds where there are several.

    >>> mean_and_spread([1.0, 3.0]), mean_and_spread([2.0])
    ((2.0, 1.4142135623730951), (2.0, None))
    """
    mean = sum(values) / len(values)
    if len(values) == 1:
        return mean, None
    return mean, math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))


def flat_settings(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings by dotted name.

    >>> flat_settings({"optim": {"lr": 0.1}})
    {'optim.lr': 0.1}
    """
    found: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            found |= flat_settings(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def _settings(run: RunResults) -> dict[str, Any]:
    return {key: value for key, value in flat_settings(run.config).items() if key not in NOT_COMPARED}


def _colors(methods: Sequence[str]) -> dict[str, int]:
    known = {method: FIRST_COLORS[method] for method in methods if method in FIRST_COLORS}
    free = [color for color in range(COLORS) if color not in known.values()] or list(range(COLORS))
    others = [method for method in dict.fromkeys(methods) if method not in known]
    return known | {method: free[number % len(free)] for number, method in enumerate(others)}


def _labels(runs: Sequence[RunResults]) -> list[str]:
    """Labels of the methods; where two groups have the same, followed by the settings in which they differ.

    Where all groups have the same method, the settings alone.
    """
    labels = []
    only = len({run.label for run in runs}) == 1
    for run in runs:
        alike = [_settings(other) for other in runs if other.label == run.label]
        mine = _settings(run)
        differing = [key for key in mine if any(other.get(key) != mine[key] for other in alike)]
        if len(alike) == 1:
            labels.append(run.label)
        elif 0 < len(differing) <= 3:
            settings = ", ".join(f"{key.rpartition('.')[2]} {mine[key]}" for key in differing)
            labels.append(settings if only else f"{run.label}, {settings}")
        else:
            labels.append(f"{run.label}, {run.name}")
    return labels
