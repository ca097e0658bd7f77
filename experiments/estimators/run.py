"""IVON with each estimator of the Hessian, as in the paper's Table 7; see README.md.

    python -m experiments.estimators.run --minutes 30

The same command goes on where it stopped. Each finished run appends a line to results.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from varlearn.recipes.bayesian_comparison import Size, comparison
from varlearn.train import RunFolder, fit, predict_run, score_run
from varlearn.train.config import Run
from varlearn.train.run_cost import run_cost

RESULTS = Path(__file__).parent / "results.jsonl"
ESTIMATORS = ("reparam", "squared_gradient", "gauss_newton", "hutchinson")
LIKE_IVON = ("vogn", "vogn-paper")


def run_of(name: str, seed: int, size: Size) -> Run:
    """IVON with an estimator, or another method: the settings are IVON's for short runs."""
    if name not in ESTIMATORS:
        return comparison(name, seed=seed, size=size)
    run = comparison("ivon", seed=seed, size=size)
    return replace(run, optim=replace(run.optim, hess_approx=name))  # type: ignore[call-arg]


def make(run: Run, out: Path) -> None:
    """Train a run, or go on with it, and predict."""
    fit(run, out, resume=RunFolder(out).config.exists(), progress=False)
    predict_run(out, analyse=False, progress=False)


def in_own_process(work: Callable[[], None]) -> bool:
    """Do something in a forked process, so that memory kept by an earlier run does not count; whether it succeeded."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=2_000)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no run after this time")
    parser.add_argument("--out", type=Path, default=Path("runs/estimators"))
    options = parser.parse_args()
    size = Size("frn_cnn", options.images, options.epochs, 2_000, 16, "fp32")
    began = time.monotonic()
    torch.set_num_threads(1)
    for seed in range(options.seeds):
        for name in (*ESTIMATORS, *LIKE_IVON):
            run = run_of(name, seed, size)
            run = replace(run, data=replace(run.data, ood=()))
            out = options.out / f"{options.images}-{options.epochs}-{name}-seed{seed}"
            if RunFolder(out).metrics.exists():
                continue
            if (time.monotonic() - began) / 60 > options.minutes:
                print("the time is over; the same command goes on", flush=True)
                return
            if not in_own_process(lambda run=run, out=out: make(run, out)):
                print(f"{out.name} failed", flush=True)
                continue
            scores, cost = score_run(out), run_cost(out)
            line: dict[str, Any] = {"estimator": name, "seed": seed, "images": options.images, "epochs": options.epochs}
            line |= {"lr": run.optim.lr, "samples": 16, "tested": scores["averaged"]["examples"]}
            line |= {"seconds_per_epoch": cost["seconds_per_epoch"], "peak_bytes": cost["memory"]}
            line |= {"mean": scores["mean"], "averaged": scores["averaged"]}
            with RESULTS.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            print(f"{time.monotonic() - began:.0f} s: {out.name}: {line['averaged']}", flush=True)


if __name__ == "__main__":
    main()
