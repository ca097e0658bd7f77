"""Every method on scikit-learn's digits, in and out of domain: seconds per run; see README.md.

    python -m experiments.digits_methods.run

The same command goes on where it stopped, and takes up methods that the library has learned since. Each finished run
appends a line to results.jsonl.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from varlearn.methods import METHODS
from varlearn.recipes import recipe
from varlearn.recipes.comparison_tables import cost
from varlearn.train import RunFolder, fit, predict_run, score_run
from varlearn.train.config import Run

HERE = Path(__file__).parent
RESULTS, CHOICES = HERE / "results.jsonl", HERE / "choices.jsonl"
FACTORS = (3.0, 1.0, 0.3)
CHOICE_SEED, HELD_OUT = 100, 200
OUTSIDE = ("digits-noise", "digits-upside-down")


def base(method: str, seed: int) -> Run:
    """The recipe of the digits with this method, scored out of the domain too."""
    run = recipe(f"digits-{method}", seed=seed)
    return replace(
        run,
        data=replace(run.data, ood=OUTSIDE),
        train=replace(run.train, eval_every=0, checkpoint_every=0, log_every=200),
    )


def chosen_rate(method: str, out: Path) -> float | None:
    """Of 3, 1 and .3 times the recipe's learning rate the best in NLL on 200 held-out training images; seed 100."""
    run = base(method, CHOICE_SEED)
    if run.optim.lr is None:
        return None
    known = [json.loads(line) for line in CHOICES.read_text().splitlines()] if CHOICES.exists() else []
    for line in known:
        if line["method"] == method:
            return line["lr"]
    tried: list[dict[str, Any]] = []
    for factor in FACTORS:
        lr = factor * run.optim.lr
        one = replace(
            run,
            optim=replace(run.optim, lr=lr),
            data=replace(run.data, ood=(), validation=float(HELD_OUT)),
            evaluate=replace(run.evaluate, samples=16, subset=50),
        )
        folder = out / f"choose-{method}"
        shutil.rmtree(folder, ignore_errors=True)
        try:
            fit(one, folder, progress=False)
            predict_run(folder, analyse=False, progress=False)
            nll = float(score_run(folder)["validation"]["averaged"]["nll"])
        except Exception as error:  # a rate at which the method diverges is not chosen
            print(f"{method} at {lr}: {error!r}", flush=True)
            nll = math.inf
        tried.append({"lr": lr, "nll": nll if math.isfinite(nll) else str(nll)})
    shutil.rmtree(out / f"choose-{method}", ignore_errors=True)
    finite = [(line["nll"], line["lr"]) for line in tried if not isinstance(line["nll"], str)]
    if not finite:
        raise RuntimeError(f"{method} diverges at every learning rate that was tried: {tried}")
    with CHOICES.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"method": method, "lr": min(finite)[1], "tried": tried}) + "\n")
    return min(finite)[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--methods", nargs="*", default=())
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no run after this time")
    parser.add_argument("--out", type=Path, default=Path("runs/digits-methods"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    began, failed = time.monotonic(), set()
    for seed in range(options.seeds):
        for method in options.methods or METHODS:
            out = options.out / f"{method}-seed{seed}"
            if method in failed or RunFolder(out).metrics.exists():
                continue
            if (time.monotonic() - began) / 60 > options.minutes:
                print("the time is over; the same command goes on", flush=True)
                return
            try:
                run = base(method, seed)
                run = replace(run, optim=replace(run.optim, lr=chosen_rate(method, options.out)))
                start = time.process_time()
                fit(run, out, resume=RunFolder(out).config.exists(), progress=False)
                seconds = time.process_time() - start
                predict_run(out, analyse=False, progress=False)
                scores = score_run(out)
            except Exception as error:  # one method that fails must not end the others
                print(f"{out.name} failed: {error!r}", flush=True)
                failed.add(method)
                continue
            line = {
                "method": method,
                "seed": seed,
                "lr": run.optim.lr,
                "samples": run.evaluate.samples if METHODS[method].averages else 1,
                "passes_per_step": cost(run) / run.train.epochs,
                "train_seconds": seconds,
                "mean": scores["mean"],
                "averaged": scores["averaged"],
            }
            with RESULTS.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            print(f"{time.monotonic() - began:.0f} s: {out.name}: NLL {line['averaged']['nll']:.4f}", flush=True)


if __name__ == "__main__":
    main()
