"""Make the tables of README.md from results.jsonl: each method on each task, and paired differences over seeds.

python -m experiments.no_tuning.summary                 prints the tables
python -m experiments.no_tuning.summary --method NAME   compares NAME with the better baseline; "vadamw" by default
"""

from __future__ import annotations

import argparse
import math
import statistics
from pathlib import Path
from typing import Any, NamedTuple

from experiments.no_tuning.run import BASELINES, HERE, SEEDS, best_rate, read
from experiments.no_tuning.tasks import TASKS

T_975 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}
Row = dict[str, Any]


class Interval(NamedTuple):
    """A mean and its 95% interval (Student's t)."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:+.4f} [{self.low:+.4f}, {self.high:+.4f}]"


def interval(values: list[float]) -> Interval:
    """
    >>> interval([1.0, 3.0])
    Interval(mean=2.0, low=-10.706, high=14.706)
    """
    mean = statistics.fmean(values)
    if len(values) < 2:
        return Interval(mean, -math.inf, math.inf)
    half = T_975[len(values) - 1] * statistics.stdev(values) / math.sqrt(len(values))
    return Interval(mean, mean - half, mean + half)


def final_runs(results: list[Row], task: str, method: str) -> dict[int, Row]:
    """By seed; a baseline's at its tuned rate."""
    rows = [r for r in results if (r["task"], r["method"]) == (task, method) and r["seed"] in SEEDS]
    if method in BASELINES:
        rate = best_rate(results, task, method)
        rows = [r for r in rows if r["rate"] == rate]
    return {r["seed"]: r for r in rows}


def value(run: Row, part: str, way: str, metric: str) -> float:
    """`way` is mean, averaged or calibrated; a baseline has a mean only. A run that diverged counts as infinite."""
    if part not in run:
        return math.inf
    scores = run[part].get(way, run[part]["mean"])
    return scores.get(metric, math.nan)


def metrics_of(task: str) -> tuple[str, str, str]:
    """The three scores of a task; a regression has no accuracy."""
    return "nll", "rmse" if TASKS[task].kind == "regression" else "accuracy", "ece"


def better_baseline(results: list[Row], task: str) -> str | None:
    """The baseline with the lower validation NLL over the seeds; None until both have run."""
    scores = {}
    for method in BASELINES:
        runs = final_runs(results, task, method)
        if not runs:
            return None
        scores[method] = statistics.fmean(value(run, "validation", "mean", "nll") for run in runs.values())
    return min(scores, key=lambda method: scores[method])


def score_table(results: list[Row], methods: list[str]) -> list[str]:
    """Test scores, mean over the seeds."""
    lines = [
        "| task | method | rate | seeds | NLL | accuracy (RMSE) | ECE | seconds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for task in TASKS:
        for method in methods:
            runs = list(final_runs(results, task, method).values())
            for way in (
                ("mean", "averaged", "calibrated") if runs and method not in BASELINES else ("mean",) * bool(runs)
            ):
                means = (statistics.fmean(value(r, "test", way, metric) for r in runs) for metric in metrics_of(task))
                cells = [f"{mean:.4f}" for mean in means]
                name = method if method in BASELINES else f"{method}, {way}"
                seconds = statistics.fmean(r["train_seconds"] for r in runs)
                scores = " | ".join(cells)
                rate = runs[0].get("rate", "")
                lines.append(f"| {task} | {name} | {rate} | {len(runs)} | {scores} | {seconds:.0f} |")
    return lines


def difference(
    results: list[Row], task: str, method: str, way: str, metric: str, other: tuple[str, str]
) -> Interval | None:
    """Test score of `method` minus that of `other` = (method, way), paired over their common seeds."""
    ours, theirs = final_runs(results, task, method), final_runs(results, task, other[0])
    seeds = sorted(set(ours) & set(theirs))
    if not seeds:
        return None
    return interval([value(ours[s], "test", way, metric) - value(theirs[s], "test", other[1], metric) for s in seeds])


def regret_table(results: list[Row], method: str) -> list[str]:
    """Paired differences after calibration; a pass is regret <= max(.01 |NLL|, .005), or an interval with 0 in it."""
    lines = [
        "| task | better baseline | regret in NLL | bar | met | accuracy (RMSE) | ECE | average - mean, NLL |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for task in TASKS:
        base = better_baseline(results, task)
        if base is None:
            continue
        nll, acc, ece = (
            difference(results, task, method, "calibrated", metric, (base, "mean")) for metric in metrics_of(task)
        )
        gain = difference(results, task, method, "calibrated", "nll", (method, "mean"))
        if nll is None:
            continue
        runs = final_runs(results, task, base).values()
        bar = max(0.01 * abs(statistics.fmean(value(r, "test", "mean", "nll") for r in runs)), 0.005)
        met = nll.mean <= bar or nll.low <= 0 <= nll.high
        lines.append(f"| {task} | {base} | {nll} | {bar:.4f} | {'yes' if met else 'no'} | {acc} | {ece} | {gain} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=HERE / "results.jsonl")
    parser.add_argument("--method", default="vadamw")
    options = parser.parse_args()
    results = read(options.results)
    print("\n".join(score_table(results, [*BASELINES, options.method])))
    print()
    print("\n".join(regret_table(results, options.method)))


if __name__ == "__main__":
    main()
