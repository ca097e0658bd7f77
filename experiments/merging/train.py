"""Train what the experiment merges: a base on IMDB, then the tasks from it, with AdamW and IVON; see README.md.

python -m experiments.merging.train --data DIR --models runs/merging
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from experiments.merging.finetuning import Classifier, Settings, finetune, scores, tokenizer
from experiments.merging.reviews import BASE, TASKS, Task, batches, load
from varlearn.posterior import load as read_posterior
from varlearn.posterior import save

RESULTS = Path(__file__).with_name("training.jsonl")
SEEDS, TUNING_TASK, TUNING_SEED = range(3), "sst2", 10
BASE_SETTINGS: Settings = {"lr": 1e-4}
# Tried on TUNING_TASK; the setting with the lowest NLL on its validation rows is taken for all tasks and seeds.
CHOICES: dict[str, list[Settings]] = {
    "adamw": [{"lr": 2e-5}, {"lr": 5e-5}, {"lr": 1e-4}, {"lr": 2e-4}],
    "ivon": [
        {"lr": 0.05, "hess_init": 1e-3, "ess": 1e8},
        {"lr": 0.05, "hess_init": 1e-2, "ess": 1e8},
        {"lr": 0.05, "hess_init": 1e-2, "ess": 1e7},
        {"lr": 0.05, "hess_init": 1e-2, "ess": 1e6},
    ],
}


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf8").splitlines()] if path.exists() else []


def note_in(path: Path, row: dict[str, Any]) -> None:
    with path.open("a", encoding="utf8") as file:
        file.write(json.dumps(row) + "\n")


def known(wanted: dict[str, Any]) -> dict[str, Any] | None:
    return next((row for row in rows_of(RESULTS) if row | wanted == row), None)


def best(kind: str) -> Settings:
    """The setting with the lowest validation NLL on the tuning seed."""
    tried = [row for row in rows_of(RESULTS) if row["kind"] == kind and row.get("seed") == TUNING_SEED]
    return min(tried, key=lambda row: row["validation"]["nll"])["settings"]


def train(model: Classifier, start: Any, task: Task, job: dict[str, Any], path: Path | None) -> None:
    """One run, unless its row (and its file) are there."""
    if known(job) is not None and (path is None or path.exists()):
        return
    model.load_state_dict(start)
    posterior, seconds = finetune(model, task.train, job["kind"], job["settings"], job["seed"])
    if path is not None:
        save(posterior, path)
    row = job | {"seconds": round(seconds, 2), "validation": scores(model, batches(task.validation, 50))}
    if job["kind"] == "ivon":
        hess = torch.cat([one.flatten() for one in posterior.hess.values()])
        row["hess"] = {"mean": hess.mean().item(), "below_0": (hess < 0).double().mean().item()}
    note_in(RESULTS, row)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--models", type=Path, default=Path("runs/merging"))
    options = parser.parse_args()
    options.models.mkdir(parents=True, exist_ok=True)
    words = tokenizer()
    torch.manual_seed(0)  # of the head
    model, base = Classifier(), options.models / "base.safetensors"
    job: dict[str, Any] = {"task": BASE, "kind": "adamw", "settings": BASE_SETTINGS, "seed": 0}
    train(model, model.state_dict(), load(options.data, BASE, words), job, base)
    start = read_posterior(base).state_dict()
    for kind, choices in CHOICES.items():
        for settings in choices:
            job = {"task": TUNING_TASK, "kind": kind, "settings": settings, "seed": TUNING_SEED}
            train(model, start, load(options.data, TUNING_TASK, words), job, None)
    for seed in SEEDS:
        for name in TASKS:
            task = load(options.data, name, words)
            for kind in CHOICES:
                job = {"task": name, "kind": kind, "settings": best(kind), "seed": seed}
                train(model, start, task, job, options.models / f"{kind}-{name}-{seed}.safetensors")


if __name__ == "__main__":
    main()
