"""IVON on digits with several Monte-Carlo samples in training and at test time, as in Figure 4; see README.md.

    python -m experiments.samples.run
    python -m experiments.samples.run --summary

The same command goes on where it stopped. Each finished run appends a line to results.jsonl.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from experiments.table2.paired import cell, interval, markdown, verdict
from varlearn.recipes import recipe
from varlearn.recipes.samples_study import measure
from varlearn.train import RunFolder, fit, predict_run, score_run
from varlearn.train.config import Run

RESULTS = Path(__file__).parent / "results.jsonl"
TRAINED, TESTED, SEEDS = (1, 2, 4, 8), 64, 5
WAYS = {"same steps": lambda samples: 1, "same passes": lambda samples: samples}


def run_of(way: str, samples: int, seed: int) -> Run:
    """The recipe of the digits with more samples in a step; with the same passes it has fewer steps."""
    run = recipe("digits-ivon", seed=seed)
    steps = run.train.steps or 0
    return replace(
        run,
        optim=replace(run.optim, samples=samples),
        train=replace(run.train, steps=steps // WAYS[way](samples), eval_every=0, checkpoint_every=0, log_every=200),
    )


def finished() -> list[dict[str, Any]]:
    """The lines of results.jsonl."""
    return [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/samples"))
    parser.add_argument("--summary", action="store_true", help="run nothing; print the tables")
    options = parser.parse_args()
    if options.summary:
        print("\n".join(summary(finished())))
        return
    torch.set_num_threads(1)
    known = {(line["way"], line["trained_with"], line["seed"]) for line in finished()}
    for seed in range(SEEDS):
        for way in WAYS:
            for samples in TRAINED:
                if (way, samples, seed) in known or (samples == 1 and way != "same steps"):
                    continue
                out = options.out / f"{way.replace(' ', '-')}-{samples}-seed{seed}"
                began = time.process_time()
                fit(run_of(way, samples, seed), out, resume=RunFolder(out).config.exists(), progress=False)
                seconds = time.process_time() - began
                predict_run(out, analyse=False, progress=False)
                score_run(out)
                line = {"way": way, "seed": seed, "seconds": round(seconds, 1), **measure(out, TESTED)}
                with RESULTS.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
                print(f"{out.name}: NLL {line['rows'][-1]['nll']:.4f}", flush=True)


def nlls(lines: list[dict[str, Any]], way: str, samples: int, tested: int) -> list[float]:
    """NLL by seed, of the average over so many test samples; 0 is the mean of the posterior."""
    way = "same steps" if samples == 1 else way
    own = sorted((line for line in lines if (line["way"], line["trained_with"]) == (way, samples)), key=_seed)
    return [line["mean"]["nll"] if tested == 0 else _row(line, tested)["nll"] for line in own]


def summary(lines: list[dict[str, Any]]) -> list[str]:
    """NLL by samples at test time, and the paired differences from one sample in training."""
    tests = [0, *(row["samples"] for row in lines[0]["rows"])]
    found = []
    for way in WAYS:
        rows = []
        for samples in TRAINED:
            cells = [cell(nlls(lines, way, samples, tested), 4) for tested in tests]
            pairs = zip(nlls(lines, way, samples, TESTED), nlls(lines, way, 1, TESTED), strict=True)
            rows.append([str(samples), *cells, "" if samples == 1 else verdict([a - b for a, b in pairs])])
        columns = ["samples in training", "mean", *(f"{tested} at test" for tested in tests[1:]), "64 less 1 sample's"]
        found += [f"{way}:", "", markdown(columns, rows)]
    for few, many in ((0, 64), (1, 64), (16, 64)):
        pairs = zip(nlls(lines, "", 1, many), nlls(lines, "", 1, few), strict=True)
        mean, half = interval([a - b for a, b in pairs])
        found.append(f"{many} test samples less {few or 'the mean'}: {mean:+.4f} ± {half:.4f}")
    return found


def _seed(line: dict[str, Any]) -> int:
    return int(line["seed"])


def _row(line: dict[str, Any], tested: int) -> dict[str, Any]:
    return next(row for row in line["rows"] if row["samples"] == tested)


if __name__ == "__main__":
    main()
