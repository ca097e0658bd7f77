"""Score finished runs on training texts that none of them learns from; settings are chosen by these scores.

    python experiments/table13_gru/held_out.py RUN ...

Writes tuning.json beside this file, a line for each run. See README.md for the commands that make the runs.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from varlearn import posterior
from varlearn.posterior import DiagGaussian, Point
from varlearn.prediction import predict, score
from varlearn.train import Run, RunFolder
from varlearn.train.build import build_batches, build_examples, build_model

TEXTS = range(8_000, 10_000)  # of the training file; the runs learn from the first 8,000
SETTINGS = ("name", "lr", "ess", "hess_init", "beta2", "clip_radius", "weight_decay")
SCORES = ("accuracy", "nll", "ece", "brier")


def held_out(folder: RunFolder) -> dict[str, Any]:
    """Scores of a finished run on the held-out texts, at the mean and averaged."""
    run = folder.read_run()
    everything = build_examples(replace(run, data=replace(run.data, subset=None)), "train")
    batches = build_batches(run, everything.select(torch.tensor(TEXTS)), train=False)
    model = build_model(run, everything)
    learned = posterior.load(folder.posterior, model)
    assert isinstance(learned, (DiagGaussian, Point))
    kinds = {"mean": learned if isinstance(learned, Point) else learned.at_mean(), "averaged": learned}
    found = {}
    for kind, weights in kinds.items():
        if kind == "mean" or isinstance(learned, DiagGaussian):  # a point has nothing to average
            scores = score(predict(model, weights, batches, run.evaluate.samples, run.seed, progress=False))
            found[kind] = {name: scores[name] for name in SCORES}
    return found


def settings(run: Run) -> dict[str, Any]:
    """What tells one trial from another."""
    values = asdict(run.optim)
    kept = SETTINGS if run.optim.name == "ivon" else ("name", "lr", "weight_decay")
    return {"seed": run.seed, "epochs": run.train.epochs, **{name: values[name] for name in kept}}


def main() -> None:
    """Score the runs that are named, each once, and print a table."""
    results = []
    for out in sys.argv[1:]:
        folder = RunFolder(Path(out))
        if not folder.posterior.exists():
            print(f"{out} is not finished", file=sys.stderr)
            continue
        cached = folder.out / "held_out.json"
        if not cached.exists():
            cached.write_text(json.dumps(held_out(folder)), encoding="utf-8")
        scores = json.loads(cached.read_text(encoding="utf-8"))
        results.append({"settings": settings(folder.read_run()), **scores})
        for kind, values in scores.items():
            print(folder.out.name, kind, *(f"{name} {values[name]:.4f}" for name in SCORES))
    text = json.dumps({"texts": [TEXTS.start, TEXTS.stop], "runs": results}, indent=2) + "\n"
    Path(__file__).with_name("tuning.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
