"""The tables of the README, from results.jsonl."""

from __future__ import annotations

import statistics
from typing import Any

Results = list[dict[str, Any]]


def summary(results: Results) -> list[str]:
    """Quality of every detector, what cleanlab flags, and the accuracies after removal, by set of labels."""
    lines: list[str] = []
    for size in dict.fromkeys(run["size"] for run in results):
        for labels in dict.fromkeys(run["labels"] for run in results):
            runs = [run for run in results if (run["size"], run["labels"]) == (size, labels)]
            if runs:
                lines += [*_detectors(runs), "", *_flagged(runs), "", *_removal(runs), ""]
    return lines


def _detectors(runs: Results) -> list[str]:
    first = runs[0]
    lines = [
        f"{first['labels']}, {first['size']}: n = {first['n']}, {100 * first['noise']:.1f}% wrong, {len(runs)} seed(s)",
        "",
        "| detector | AUROC | average precision | miss rate | cost in trainings |",
        "|---|---|---|---|---|",
    ]
    order = sorted(first["scores"], key=lambda name: -_mean(runs, "scores", name, "auroc"))
    for name in order:
        cells = [_cell(runs, "scores", name, key) for key in ("auroc", "ap", "miss")]
        lines.append(f"| {name} | {' | '.join(cells)} | {_cost(runs, name):.1f} |")
    return lines


def _cost(runs: Results, name: str) -> float:
    """Seconds in units of one training with AdamW, mean over seeds."""
    costs = []
    for run in runs:
        seconds = run["seconds"]
        if name.startswith("5-fold"):
            spent = seconds["cross-validation"]
        elif name.startswith("AdamW"):
            spent = seconds["adamw"]
        else:
            spent = seconds["ivon"]["training"]
            passes = 0.0 if name.startswith("IVON") else seconds["ivon"]["sensitivity"]
            spent += passes * (1.0 if "accumulated" in name else 1.0 / run["passes"])
        costs.append(spent / seconds["adamw"])
    return statistics.fmean(costs)


def _flagged(runs: Results) -> list[str]:
    lines = ["| cleanlab's own choice by | flagged | precision | recall |", "|---|---|---|---|"]
    for name in runs[0]["flagged"]:
        cells = [_cell(runs, "flagged", name, key) for key in ("count", "precision", "recall")]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _removal(runs: Results) -> list[str]:
    lines = ["| removed by | test accuracy % |", "|---|---|"]
    return lines + [f"| {name} | {_cell(runs, 'removal', name, factor=100)} |" for name in runs[0]["removal"]]


def _values(runs: Results, *path: str) -> list[float]:
    found = []
    for run in runs:
        value: Any = run
        for key in path:
            value = value[key]
        found.append(float(value))
    return found


def _mean(runs: Results, *path: str) -> float:
    return statistics.fmean(_values(runs, *path))


def _cell(runs: Results, *path: str, factor: float = 1.0) -> str:
    values = [factor * value for value in _values(runs, *path)]
    digits = 0 if path[-1] == "count" else 1 if factor > 1 else 3
    mean = f"{statistics.fmean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.{digits}f}"
