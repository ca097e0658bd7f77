"""How far the leave-one-out loss is from the test loss over a curve, as it is and at the one scale that fits best."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any


def gaps(run: dict[str, Any], variance: str, scales: Sequence[float]) -> dict[str, float]:
    """Of one run and one variance: correlation and mean absolute gap, as it is and at the best scale.

    Args:
        run: a line of results.jsonl.
        variance: its name.
        scales: of the columns; one of them is 1.
    """
    test = [record["test"] for record in run["epochs"]]
    columns = list(zip(*(record["loo"][variance] for record in run["epochs"]), strict=True))
    plain = columns[min(range(len(scales)), key=lambda place: abs(scales[place] - 1.0))]
    means = [_gap(column, test) for column in columns]
    best = min(range(len(scales)), key=lambda place: means[place])
    train = [record["train"] for record in run["epochs"]]
    return {
        "train gap": _gap(train, test),
        "train correlation": correlation(train, test),
        "gap": _gap(plain, test),
        "correlation": correlation(plain, test),
        "scale": scales[best],
        "best gap": means[best],
        "best correlation": correlation(columns[best], test),
        "last test": test[-1],
        "last loo": plain[-1],
    }


def correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Pearson's; 0 where one of the two is constant."""
    if len(set(first)) < 2 or len(set(second)) < 2:
        return 0.0
    return statistics.correlation(first, second)


def summary(results: list[dict[str, Any]], scales: Sequence[float]) -> list[str]:
    """A row for each task, method and variance; the means over seeds."""
    lines = [
        "| task | method | variance | gap of train loss | LOO: gap | correlation | best scale | gap | correlation |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    groups: dict[tuple[str, str, str, str], list[dict[str, float]]] = {}
    for run in results:
        for variance in run["epochs"][0]["loo"]:
            key = (run["size"], run["task"], run["method"], variance)
            groups.setdefault(key, []).append(gaps(run, variance, scales))
    for (size, task, method, variance), found in groups.items():
        mean = {name: statistics.fmean(one[name] for one in found) for name in found[0]}
        lines.append(
            f"| {task} ({size}, {len(found)} seed(s)) | {method} | {variance} | {mean['train gap']:.3f} "
            f"| {mean['gap']:.3f} | {mean['correlation']:.2f} | {mean['scale']:.3g} | {mean['best gap']:.3f} "
            f"| {mean['best correlation']:.2f} |"
        )
    return lines


def _gap(curve: Sequence[float], test: Sequence[float]) -> float:
    return statistics.fmean(abs(a - b) for a, b in zip(curve, test, strict=True))
