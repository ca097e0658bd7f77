"""Print the table of ivon_options.md: `python -m experiments.no_tuning.ivon_summary`."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import fmean

from experiments.no_tuning.run import Job, read

FAILED = 5.0  # nats: runs above are shown as "fails"
COSTS = {"two": 2, "pairs": 2, "pairs_fast": 2, "pairs4": 1.25, "pairs4fast": 1.25}  # backward passes, against the base


def nll(result: Job) -> float:
    """Validation NLL of the calibrated average; infinite for a run that diverged."""
    return result["validation"]["calibrated"]["nll"] if "validation" in result else math.inf


def cell(results: list[Job], task: str, variant: str) -> str:
    """Mean difference to the base over the seeds that both have, and their number; the base itself as it is."""
    runs, base = (
        {r["seed"]: nll(r) for r in results if (r["task"], r["variant"]) == (task, name)} for name in (variant, "base")
    )
    seeds = sorted(runs.keys() & base.keys())
    if not seeds:
        return ""
    if fmean(runs[seed] for seed in seeds) > FAILED:
        return f"fails ({len(seeds)})"
    change = fmean(runs[seed] - (0.0 if variant == "base" else base[seed]) for seed in seeds)
    return f"{change:.3f} ({len(seeds)})" if variant == "base" else f"{change:+.3f} ({len(seeds)})"


def table(results: list[Job]) -> str:
    tasks, variants = (list(dict.fromkeys(result[key] for result in results)) for key in ("task", "variant"))
    lines = ["| | cost | " + " | ".join(tasks) + " |", "|---|---|" + "---|" * len(tasks)]
    for variant in variants:
        cells = [cell(results, task, variant) for task in tasks]
        lines.append(f"| {variant} | {COSTS.get(variant, 1)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(read(Path(__file__).parent / "ivon_options.jsonl")))
