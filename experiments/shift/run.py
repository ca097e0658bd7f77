"""Methods on corrupted images of CIFAR-10, as in the paper's Figure 7, at a small size; see README.md.

    python -m experiments.shift.run
    python -m experiments.shift.run --summary

The same command goes on where it stopped. Each finished run appends a line to results.jsonl.
"""

from __future__ import annotations

import argparse
import json
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from experiments.table2.paired import cell, markdown, verdict
from varlearn.methods import named
from varlearn.recipes.bayesian_comparison import Size, comparison
from varlearn.recipes.shift_study import measure
from varlearn.train import RunFolder, fit, predict_run, score_run
from varlearn.train.config import Run

RESULTS = Path(__file__).parent / "results.jsonl"
METHODS = ("sgd", "ivon", "vadamw", "mc-dropout", "swag")
SEEDS = 3
SIZE = Size("frn_cnn", 2_000, 8, 250, 4, "fp32")
SGD_RATE = 0.05  # of SGD and what takes its steps: SWAG's own; SGD's 0.2 diverges on this network
SEVERITIES = (0, 1, 2, 3, 4, 5)


def run_of(method: str, seed: int) -> Run:
    """The comparison's run, without sets out of the domain."""
    run = comparison(method, seed=seed, size=SIZE)
    if method in ("sgd", "mc-dropout"):
        run = replace(run, optim=replace(run.optim, lr=SGD_RATE))
    return replace(run, data=replace(run.data, ood=()))


def finished() -> list[dict[str, Any]]:
    """The lines of results.jsonl."""
    return [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/shift"))
    parser.add_argument("--summary", action="store_true", help="run nothing; print the tables")
    options = parser.parse_args()
    if options.summary:
        print(summary(finished()))
        return
    torch.set_num_threads(1)
    known = {(line["method"], line["seed"]) for line in finished()}
    for seed in range(SEEDS):
        for method in METHODS:
            if (method, seed) in known:
                continue
            out = options.out / f"{method}-seed{seed}"
            fit(run_of(method, seed), out, resume=RunFolder(out).config.exists(), progress=False)
            predict_run(out, analyse=False, progress=False)
            score_run(out)
            found = measure(out, SIZE.tested, SIZE.samples)
            line = {"method": method, "seed": seed, "lr": run_of(method, seed).optim.lr, **found}
            with RESULTS.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            print(f"{out.name}: {[round(by_severity(line, each, 'nll'), 3) for each in SEVERITIES]}", flush=True)


def by_severity(line: dict[str, Any], severity: int, key: str) -> float:
    """The mean over the corruptions; severity 0 is the test set itself."""
    return statistics.fmean(row[key] for row in line["rows"] if row["severity"] == severity)


def scores(lines: list[dict[str, Any]], method: str, key: str, severity: int) -> dict[int, float]:
    """By seed."""
    return {line["seed"]: by_severity(line, severity, key) for line in lines if line["method"] == method}


def less_sgd(lines: list[dict[str, Any]], method: str, severity: int) -> str:
    """The NLL less SGD's, paired over the seeds that both have."""
    own, sgd = scores(lines, method, "nll", severity), scores(lines, "sgd", "nll", severity)
    return verdict([own[seed] - sgd[seed] for seed in sorted(own.keys() & sgd.keys())])


def summary(lines: list[dict[str, Any]]) -> str:
    """NLL and ECE by severity, and each method's NLL less SGD's, paired over seeds, at low and at high severities."""
    found = []
    for key, title in (("nll", "NLL"), ("ece", "ECE, 20 bins"), ("accuracy", "accuracy")):
        rows = []
        for method in METHODS:
            own = [scores(lines, method, key, severity) for severity in SEVERITIES]
            rows.append([named(method).label, str(len(own[0])), *(cell(list(each.values())) for each in own)])
        found.append(markdown([title, "n", *(f"severity {each}" for each in SEVERITIES)], rows))
    rows = [[named(method).label, *(less_sgd(lines, method, each) for each in (0, 1, 5))] for method in METHODS[1:]]
    found.append(markdown(["NLL less SGD's", "severity 0", "severity 1", "severity 5"], rows))
    return "\n".join(found)


if __name__ == "__main__":
    main()
