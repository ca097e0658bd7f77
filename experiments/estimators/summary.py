"""Prints the table of the README from results.jsonl: `python -m experiments.estimators.summary`."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results.jsonl"


def spread(values: list[float], digits: int) -> str:
    """Mean and standard deviation."""
    return f"{statistics.fmean(values):.{digits}f} +- {statistics.stdev(values) if len(values) > 1 else 0.0:.{digits}f}"


def table(lines: list[dict[str, Any]]) -> list[str]:
    """A row for each estimator, in the order of the runs."""
    rows = ["| estimator | seeds | accuracy % | NLL | NLL at the mean | ECE (20 bins) | s per epoch | peak MB |"]
    rows.append("|" + "---|" * 8)
    for name in dict.fromkeys(line["estimator"] for line in lines):
        own = [line for line in lines if line["estimator"] == name]
        cells = [name, str(len(own)), spread([100.0 * line["averaged"]["accuracy"] for line in own], 1)]
        cells += [spread([line[kind]["nll"] for line in own], 3) for kind in ("averaged", "mean")]
        cells.append(spread([line["averaged"]["ece"] for line in own], 3))
        cells.append(f"{statistics.median(line['seconds_per_epoch'] for line in own):.2f}")
        cells.append(f"{statistics.median(line['peak_bytes'] for line in own) / 1e6:.0f}")
        rows.append("| " + " | ".join(cells) + " |")
    return rows


if __name__ == "__main__":
    print("\n".join(table([json.loads(line) for line in RESULTS.read_text(encoding="utf-8").splitlines()])))
