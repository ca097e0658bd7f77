"""Paired differences between methods over seeds, with 95% intervals, and tables in Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

# Student's t for 95% and n - 1 degrees of freedom, by n
QUANTILES = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}

Rows = Sequence[Mapping[str, Any]]


def by_method(rows: Rows) -> dict[str, dict[int, Mapping[str, Any]]]:
    """method -> seed -> row; of two lines for one run the later counts."""
    found: dict[str, dict[int, Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["method"], {})[row["seed"]] = row
    return found


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The mean, and half the width of its 95% interval; infinite for a single value."""
    if len(values) < 2:
        return statistics.fmean(values), float("inf")
    return statistics.fmean(values), QUANTILES[len(values)] * statistics.stdev(values) / len(values) ** 0.5


def value(row: Mapping[str, Any], path: str) -> float:
    """A number by its path, e.g. "averaged.ood.svhn-pack.auroc"."""
    for key in path.split("."):
        row = row[key]
    return float(row)  # type: ignore[arg-type]


def difference(one: Mapping[int, Any], other: Mapping[int, Any], path: str, other_path: str = "") -> list[float]:
    """Of each seed that both have: one less other."""
    both = sorted(one.keys() & other.keys())
    return [value(one[seed], path) - value(other[seed], other_path or path) for seed in both]


def verdict(values: Sequence[float], lower_is_better: bool = True) -> str:
    """In words: better or worse where the interval excludes 0, otherwise undecided, with the interval."""
    if not values:
        return "not run"
    mean, half = interval(values)
    text = f"{mean:+.3f} ± {half:.3f} (n = {len(values)})" if half < float("inf") else f"{mean:+.3f} (n = 1)"
    if abs(mean) <= half:
        return f"undecided: {text}"
    return f"{'better' if (mean < 0) == lower_is_better else 'worse'}: {text}"


def cell(values: Sequence[float], digits: int = 3, factor: float = 1.0) -> str:
    """Mean and standard deviation."""
    if not values:
        return "–"
    text = f"{statistics.fmean(values) * factor:.{digits}f}"
    return text if len(values) == 1 else f"{text} ± {statistics.stdev(values) * factor:.{digits}f}"


def markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
