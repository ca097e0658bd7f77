"""IVON on digits with each h0 of the paper's Table 8; see README.md.

    python -m experiments.hess_init.run
    python -m experiments.hess_init.run --summary

The same command goes on where it stopped. Each finished run appends a line to results.jsonl.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from experiments.table2.paired import cell, markdown
from varlearn.methods import Optim
from varlearn.recipes import recipe
from varlearn.train import RunFolder, fit, predict_run, score_run
from varlearn.train.config import Run

RESULTS = Path(__file__).parent / "results.jsonl"
VALUES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
SEEDS = 3
SETTINGS = ("paper", "short")


def settings(name: str, h0: float, short: Optim) -> Optim:
    """IVON as in the paper's table, with lambda = n and beta2 = 1 - 1e-5, or as `presets.short_run` has it."""
    if name == "short":
        return replace(short, hess_init=h0)
    return replace(short, hess_init=h0, ess=None, beta2=1.0 - 1e-5, weight_decay=2e-4)


def run_of(name: str, h0: float, seed: int) -> Run:
    """The recipe of the digits with another h0."""
    run = recipe("digits-ivon", seed=seed)
    train = replace(run.train, eval_every=0, checkpoint_every=0, log_every=200)
    return replace(run, optim=settings(name, h0, run.optim), train=train)


def finished() -> list[dict[str, Any]]:
    """The lines of results.jsonl."""
    return [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/hess-init"))
    parser.add_argument("--summary", action="store_true", help="run nothing; print the table")
    options = parser.parse_args()
    if options.summary:
        print(summary(finished()))
        return
    torch.set_num_threads(1)
    known = {(line["settings"], line["h0"], line["seed"]) for line in finished()}
    for seed in range(SEEDS):
        for name in SETTINGS:
            for h0 in VALUES:
                if (name, h0, seed) in known:
                    continue
                out = options.out / f"{name}-{h0}-seed{seed}"
                line: dict[str, Any] = {"settings": name, "h0": h0, "seed": seed}
                try:
                    fit(run_of(name, h0, seed), out, resume=RunFolder(out).config.exists(), progress=False)
                    predict_run(out, analyse=False, progress=False)
                    scores = score_run(out)
                    line |= {kind: scores[kind] for kind in ("mean", "averaged")}
                except FloatingPointError as error:  # an h0 at which training diverges is a result
                    line["failed"] = str(error)
                with RESULTS.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
                print(f"{out.name}: {line.get('failed') or line['averaged']['nll']}", flush=True)


def summary(lines: list[dict[str, Any]]) -> str:
    """A row for each h0: accuracy, NLL and ECE of the average, and the NLL of the mean."""
    rows = []
    for name in SETTINGS:
        for h0 in VALUES:
            own = [line for line in lines if (line["settings"], line["h0"]) == (name, h0)]
            good = [line for line in own if "averaged" in line and math.isfinite(float(line["averaged"]["nll"]))]
            cells = [cell([line["averaged"]["accuracy"] for line in good], 2, 100.0)]
            cells += [cell([line["averaged"][key] for line in good]) for key in ("nll", "ece")]
            cells.append(cell([line["mean"]["nll"] for line in good]))
            rows.append([name, f"{h0:g}", f"{len(good)} of {len(own)}", *cells])
    return markdown(["settings", "h0", "finished", "accuracy %", "NLL", "ECE, 20 bins", "NLL of the mean"], rows)


if __name__ == "__main__":
    main()
