"""The tables of README.md from what was measured: python -m experiments.merging.summary"""

from __future__ import annotations

import statistics
from typing import Any

from experiments.merging.compare import RESULTS
from experiments.merging.reviews import ALL
from experiments.merging.train import rows_of


def cells(rows: list[dict[str, Any]]) -> list[str]:
    """Accuracy of each task and their mean in per cent, over seeds."""
    found = []
    for task in ALL:
        values = [100 * row["test"][task]["accuracy"] for row in rows if task in row["test"]]
        found.append(f"{statistics.mean(values):.1f}" if values else "")
    means = [100 * statistics.mean(one["accuracy"] for one in row["test"].values()) for row in rows]
    spread = f" ± {statistics.stdev(means):.1f}" if len(means) > 1 else ""
    return [*found, f"{statistics.mean(means):.1f}{spread}"]


def main() -> None:
    rows = rows_of(RESULTS)
    print(f"| models | method | seeds | alpha | {' | '.join(ALL)} | mean |")
    print("|" + "---|" * (len(ALL) + 5))
    for kind, method in dict.fromkeys((row["kind"], row["method"]) for row in rows):
        here = [row for row in rows if (row["kind"], row["method"]) == (kind, method)]
        alphas = ", ".join(f"{row['alpha']:g}" for row in here if "alpha" in row)
        print(f"| {kind} | {method} | {len(here)} | {alphas} | {' | '.join(cells(here))} |")


if __name__ == "__main__":
    main()
