"""Two claims of the paper's Appendix A on small data; see README.md.

python -m experiments.appendix_a.run            # resumes by reading results.jsonl
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import nn

from experiments.no_tuning.development import DEVELOPMENT
from experiments.no_tuning.ivon_options import Ivon
from experiments.no_tuning.tasks import TASKS, Part, Parts, Task
from experiments.no_tuning.training import Baseline, Method, run
from varlearn.data import load

HERE = Path(__file__).parent
TUNING_SEED, SEEDS = 10, range(3)
RATES = {"sgd": (0.03, 0.1, 0.3), "adamw": (1e-3, 3e-3, 1e-2), "ivon": (0.3, 1.0, 3.0)}  # IVON's times the preset's
LADDER = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
LAST = 0.1  # of the peak rate, in the runs that do not decay to 0


@lru_cache
def _mnist(seed: int) -> Parts:
    """The development task's training and validation images, and the first 4,000 test images."""
    parts, test = DEVELOPMENT["dev-mnist-mlp"].data(seed), load("mnist", "test")
    inputs = (test.inputs[:4_000].float() / 255 - test.mean[0]) / test.std[0]
    return Parts(parts.train, parts.validation, Part(inputs, test.targets[:4_000]))


def settings(task: Task) -> dict[str, tuple[Task, float]]:
    """Name -> the task in that length and batch size, and the last learning rate as a share of the peak."""
    return {
        "as it is": (task, 0.0),
        "ends at a tenth": (task, LAST),
        "4 x passes": (replace(task, passes=4 * task.passes), 0.0),
        "4 x batch, same passes": (replace(task, batch=4 * task.batch), 0.0),
        "4 x batch, same steps": (replace(task, batch=4 * task.batch, passes=4 * task.passes), 0.0),
    }


NETWORKS = {"digits": TASKS["digits-mlp"], "mnist": replace(DEVELOPMENT["dev-mnist-mlp"], data=_mnist, passes=20.0)}


class LastRate:
    """A method whose learning rate ends at a share of its peak."""

    def __init__(self, method: Method, share: float) -> None:
        self._method, self._share = method, share
        self.has_posterior, self.samples = method.has_posterior, method.samples
        self.perturb, self.show = method.perturb, method.show

    def step(self, schedule: float) -> None:
        self._method.step(self._share + (1.0 - self._share) * schedule)


def method_of(job: dict[str, Any], task: Task, share: float, model: nn.Module, parts: Parts) -> Method:
    if job["method"] == "ivon":
        return LastRate(Ivon(model, task, parts, {"rate": job["rate"], "seed": job["seed"]}), share)
    return LastRate(Baseline(job["method"], model, job["rate"]), share)


def score(result: dict[str, Any], part: str) -> float:
    """NLL of IVON's average, of a baseline's weights; infinite for a run that diverged."""
    return result[part]["averaged" if result["method"] == "ivon" else "mean"]["nll"] if part in result else math.inf


def tuned(results: list[dict[str, Any]], job: dict[str, Any]) -> dict[float, float]:
    """Validation NLL by rate, on the tuning seed."""
    same = [r for r in results if r["seed"] == TUNING_SEED and all(r[key] == job[key] for key in KEYS)]
    return {result["rate"]: score(result, "validation") for result in same}


def next_job(results: list[dict[str, Any]], job: dict[str, Any]) -> dict[str, Any] | None:
    """The next run of a network, a setting and a method: its rates, those beside the best, then the seeds there."""
    seen = tuned(results, job)
    missing = [rate for rate in RATES[job["method"]] if rate not in seen]
    if not missing:
        place = LADDER.index(min(seen, key=lambda rate: seen[rate]))
        missing = [rate for rate in LADDER[max(0, place - 1) : place + 2] if rate not in seen]
    if missing:
        return job | {"rate": missing[0], "seed": TUNING_SEED}
    final = [job | {"rate": min(seen, key=lambda rate: seen[rate]), "seed": seed} for seed in SEEDS]
    return next((each for each in final if not any(each.items() <= result.items() for result in results)), None)


KEYS = ("network", "setting", "method")


def final(results: list[dict[str, Any]], job: dict[str, Any]) -> list[dict[str, Any]]:
    """The runs at the chosen rate, by seed; none while one is missing."""
    if next_job(results, job) is not None:
        return []
    seen = tuned(results, job)
    job = job | {"rate": min(seen, key=lambda rate: seen[rate])}
    rows = [r for r in results if r["seed"] in SEEDS and job.items() <= r.items()]
    return sorted(rows, key=lambda row: row["seed"])


def table(results: list[dict[str, Any]]) -> str:
    """Rows of the README: test NLL at the chosen rate, and its change against the first setting, mean of the seeds."""
    lines = []
    for network in NETWORKS:
        for setting in settings(NETWORKS[network]):
            cells = []
            for method in RATES:
                key = {"network": network, "setting": setting, "method": method}
                rows, base = (final(results, wanted) for wanted in (key, key | {"setting": "as it is"}))
                if not rows or not base:
                    cells.append(" ")
                    continue
                changes = [score(r, "test") - score(first, "test") for r, first in zip(rows, base, strict=True)]
                spread = f" ({min(changes):+.3f} to {max(changes):+.3f})" if setting != "as it is" else ""
                cells.append(f"{fmean(score(row, 'test') for row in rows):.3f}{spread}, rate {rows[0]['rate']:g}")
            lines.append(f"| {network} | {setting} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=HERE / "results.jsonl")
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS))
    parser.add_argument("--table", action="store_true", help="print the README's table and stop")
    options = parser.parse_args()
    torch.set_num_threads(1)
    path: Path = options.results
    done = [json.loads(line) for line in path.read_text(encoding="utf8").splitlines()] if path.exists() else []
    if options.table:
        print(table(done))
        return
    for network in options.networks:
        for setting, (task, share) in settings(NETWORKS[network]).items():
            for method in RATES:
                what = {"network": network, "setting": setting, "method": method}
                while (job := next_job(done, what)) is not None:
                    make = partial(method_of, job, task, share)
                    done.append(job | run(task, job["seed"], make, test=job["seed"] in SEEDS, scales=(1.0,)))
                    with path.open("a", encoding="utf8") as file:
                        file.write(json.dumps(done[-1]) + "\n")


if __name__ == "__main__":
    main()
