"""Work through a queue of runs, one JSON line each; see README.md.

python -m experiments.no_tuning.run --queue queue.jsonl --results results.jsonl
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

import varlearn
from experiments.no_tuning.development import DEVELOPMENT
from experiments.no_tuning.tasks import SCALE, Task
from experiments.no_tuning.tasks import TASKS as BENCHMARK
from experiments.no_tuning.training import Baseline, Method, Parts, run

TASKS = BENCHMARK | DEVELOPMENT
HERE = Path(__file__).parent
TUNING_SEED = 10
SEEDS = range(5)
BASELINES = ("sgd", "adamw")
MEASURED = {"train_seconds", "seconds", "steps", "diverged", "scale", "torch", "varlearn", "python"}
Job = dict[str, Any]  # task, method, seed, and rate or the options of the method


def read(path: Path) -> list[Job]:
    return [json.loads(line) for line in path.read_text(encoding="utf8").splitlines()] if path.exists() else []


def tuned(results: list[Job], task: str, method: str) -> dict[float, float]:
    """Validation NLL by rate, on the tuning seed; infinite for a run that diverged."""
    return {
        r["rate"]: r["validation"]["mean"]["nll"] if "validation" in r else math.inf
        for r in results
        if (r["task"], r["method"], r["seed"]) == (task, method, TUNING_SEED)
    }


def missing_rates(results: list[Job], task: str, method: str) -> list[float]:
    """Rates still to try: the task's own, then those beside the best as long as it is the largest or the smallest."""
    seen = tuned(results, task, method)
    missing = [rate for rate in TASKS[task].rates[method] if rate not in seen]
    if not missing:
        best = SCALE.index(min(seen, key=lambda rate: seen[rate]))
        missing = [rate for rate in SCALE[max(0, best - 1) : best + 2] if rate not in seen]
    return missing


def best_rate(results: list[Job], task: str, method: str) -> float | None:
    """The rate with the lowest validation NLL on the tuning seed; None while a rate is missing."""
    if missing_rates(results, task, method):
        return None
    seen = tuned(results, task, method)
    return min(seen, key=lambda rate: seen[rate])


def tuning_jobs(task: str) -> list[Job]:
    return [
        {"task": task, "method": method, "rate": rate, "seed": TUNING_SEED}
        for method in BASELINES
        for rate in TASKS[task].rates[method]
    ]


def final_jobs(task: str) -> list[Job]:
    return [{"task": task, "method": method, "rate": "best", "seed": seed} for seed in SEEDS for method in BASELINES]


def default_queue(tasks: list[str]) -> list[Job]:
    """Tuning first, cheap tasks first."""
    return [job for task in tasks for job in tuning_jobs(task)] + [job for task in tasks for job in final_jobs(task)]


def resolved(job: Job, results: list[Job]) -> Job:
    """The job with its rate as a number. While the tuning is incomplete, the next tuning run takes its place."""
    if job.get("rate") != "best":
        return job
    missing = missing_rates(results, job["task"], job["method"])
    if missing:
        return job | {"rate": missing[0], "seed": TUNING_SEED}
    return job | {"rate": best_rate(results, job["task"], job["method"])}


def job_of(result: Job) -> Job:
    """What was asked for; scores are dictionaries."""
    return {key: value for key, value in result.items() if key not in MEASURED and not isinstance(value, dict)}


def next_job(queue: list[Job], results: list[Job]) -> Job | None:
    """The first job that can run and has not."""
    for job in queue:
        ready = resolved(job, results)
        if not any(job_of(result) == ready for result in results):
            return ready
    return None


def task_of(job: Job) -> Task:
    """The task, `passes` times as long where a job says so."""
    task = TASKS[job["task"]]
    return replace(task, passes=task.passes * job.get("passes", 1))


def method_of(job: Job, model: torch.nn.Module, parts: Parts) -> Method:
    if job["method"] in BASELINES:
        return Baseline(job["method"], model, job["rate"])
    if job["method"] == "vadamw":
        from experiments.no_tuning.library import Variational

        return Variational(model, task_of(job), parts, job)
    if job["method"] == "ivon":
        from experiments.no_tuning.ivon_options import Ivon

        return Ivon(model, task_of(job), parts, job)
    from experiments.no_tuning.explore import Rule

    return Rule(model, task_of(job), parts, job)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queue", type=Path, help="JSON lines, read again after each run; without it, the baselines")
    parser.add_argument("--results", type=Path, default=HERE / "results.jsonl")
    parser.add_argument("--exploration", type=Path, default=HERE / "exploration.jsonl", help="runs without test scores")
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(BENCHMARK))
    parser.add_argument("--wait", action="store_true", help="when the queue is done, wait for more")
    options = parser.parse_args()
    torch.set_num_threads(1)
    versions = {"torch": torch.__version__, "varlearn": varlearn.__version__, "python": platform.python_version()}
    while True:
        queue = read(options.queue) if options.queue else default_queue(options.tasks)
        job = next_job(queue, read(options.results) + read(options.exploration))
        if job is None:
            if not options.wait:
                return
            time.sleep(5)
            continue
        task = task_of(job)
        extra = {} if "scales" not in job else {"scales": tuple(job["scales"])}
        result = job | run(task, job["seed"], partial(method_of, job), test=job.get("test", True), **extra) | versions
        with (options.results if job.get("test", True) else options.exploration).open("a", encoding="utf8") as file:
            file.write(json.dumps(result) + "\n")
        print(
            json.dumps({key: result.get(key) for key in ("task", "method", "rate", "seed", "seconds")}), file=sys.stderr
        )


if __name__ == "__main__":
    main()
