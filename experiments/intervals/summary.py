"""The table of the README, from `results.jsonl`."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from typing import Any

from experiments.intervals.run import RESULTS


def main() -> None:
    """Print mean and standard error over splits."""
    groups = defaultdict[tuple[str, str], list[dict[str, Any]]](list)
    for row in map(json.loads, RESULTS.read_text().splitlines()):
        groups[row["set"], row["noise"]].append(row)
    print("| set | noise | splits | coverage | weights alone | noise alone | epistemic share | RMSE | NLL |")
    print("|---|---|---|---|---|---|---|---|---|")
    for (name, noise), found in sorted(groups.items()):
        covered = [row["coverage"] for row in found]
        error = statistics.stdev(covered) / len(covered) ** 0.5 if len(covered) > 1 else float("nan")
        mean = {key: statistics.mean(row[key] for row in found) for key in found[0] if isinstance(found[0][key], float)}
        print(
            f"| {name.removeprefix('uci-')} | {noise} | {len(found)} "
            f"| {100 * mean['coverage']:.1f} ± {100 * error:.1f}% "
            f"| {100 * mean['coverage_epistemic']:.0f}% | {100 * mean['coverage_aleatoric']:.0f}% "
            f"| {100 * mean['epistemic_share']:.0f}% | {mean['rmse']:.3f} | {mean['nll']:.3f} |"
        )


if __name__ == "__main__":
    main()
