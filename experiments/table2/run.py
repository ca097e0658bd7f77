"""Trains and scores the methods of Tables 2 and 3 under one protocol; see README.md.

    python -m experiments.table2.run                                     # the full size: hours
    python -m experiments.table2.run --network frn_cnn --images 5000 --tested 2000 --samples 16 --minutes 35

The same command goes on where it stopped, and takes up methods that the library has learned since. Each finished run
appends a line to results.jsonl. The runs stay in `--out`; the other experiments read them.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from experiments.table2.choose import chosen_rate
from varlearn.methods import METHODS
from varlearn.recipes.bayesian_comparison import Size, comparison, methods
from varlearn.train import RunFolder, fit, predict_run, score_run
from varlearn.train.config import Run

RESULTS = Path(__file__).parent / "results.jsonl"
MEMBERS_OF = ("sgd", "ivon")  # deep ensembles and Multi-IVON: trained with further seeds
FIRST = ("sgd", "ivon", "adamw", "vadamw")


def plan(seeds: int, members: int, wanted: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    """(method, seed) in the order in which they are run: all methods with each seed, then further members."""
    known = sorted(wanted or methods(), key=lambda name: (*FIRST, name).index(name))
    for seed in range(seeds):
        for method in known:
            yield method, seed
    for seed in range(seeds, members):
        for method in MEMBERS_OF:
            if method in known:
                yield method, seed


def folder_of(out: Path, run: Run) -> Path:
    """Where a run of the comparison is."""
    size = f"{run.model.name}-{run.data.subset}-{run.train.epochs}"
    return out / f"{size}-{run.optim.name}-seed{run.seed}"


def train(run: Run, out: Path) -> float:
    """Train a run, or go on with it; returns the seconds of the processor that this call took."""
    began = time.process_time()
    folder = RunFolder(out)
    if not folder.posterior.exists():
        fit(run, out, resume=folder.config.exists(), progress=False)
    return time.process_time() - began


def row(run: Run, out: Path, seconds: float | None) -> dict[str, Any]:
    """What a finished run says."""
    scores = score_run(out)
    return {
        "network": run.model.name,
        "images": run.data.subset,
        "epochs": run.train.epochs,
        "method": run.optim.name,
        "seed": run.seed,
        "lr": run.optim.lr,
        "samples": run.evaluate.samples if METHODS[run.optim.name].averages else 1,
        "tested": scores["averaged"]["examples"],
        "train_seconds": seconds,
        "mean": scores["mean"],
        "averaged": scores["averaged"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", default=Size.network)
    parser.add_argument("--images", type=int, default=Size.images)
    parser.add_argument("--epochs", type=int, default=Size.epochs)
    parser.add_argument("--tested", type=int, default=Size.tested)
    parser.add_argument("--samples", type=int, default=Size.samples)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--members", type=int, default=5)
    parser.add_argument("--methods", nargs="*", default=())
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no run after this time")
    parser.add_argument("--out", type=Path, default=Path("runs/comparison"))
    options = parser.parse_args()
    size = Size(options.network, options.images, options.epochs, options.tested, options.samples)
    began = time.monotonic()
    torch.set_num_threads(1)
    failed: set[str] = set()
    for method, seed in plan(options.seeds, options.members, tuple(options.methods)):
        run = comparison(method, seed=seed, size=size)
        out = folder_of(options.out, run)
        if RunFolder(out).metrics.exists() or method in failed:
            continue
        if (time.monotonic() - began) / 60 > options.minutes:
            print("the time is over; the same command goes on", flush=True)
            return
        try:
            run = replace(run, optim=replace(run.optim, lr=chosen_rate(method, size, options.out)))
            seconds = train(run, out)
            predict_run(out, analyse=False, progress=False)
        except Exception as error:  # one method that fails must not end the others
            print(f"{out.name} failed: {error!r}", flush=True)
            failed.add(method)
            continue
        line = row(run, out, seconds)
        with RESULTS.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        print(f"{time.monotonic() - began:.0f} s: {out.name}: {line['averaged']}", flush=True)


if __name__ == "__main__":
    main()
