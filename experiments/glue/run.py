"""Finetune MiniLM on tasks of GLUE with AdamW and IVON, both tuned on held-out training data; see README.md.

python -m experiments.glue.run              the tuning, then the seeds; goes on where it stopped
python -m experiments.glue.run --prior      IVON with the prior at 0 and at the pretrained weights
python -m experiments.glue.run --table      the tables of README.md
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from varlearn.data.loading import TEXTS
from varlearn.data.text_sets import Texts, chosen_texts
from varlearn.files.checked_json import read_json_lines
from varlearn.methods import METHODS, Facts
from varlearn.methods.ivon import IVONMethod
from varlearn.recipes import glue
from varlearn.train import Run, fit, predict_run, score_run

RESULTS = Path(__file__).with_name("results.jsonl")
TASKS = {"sst2": 32, "cola": 32, "mrpc": 48, "stsb": 40, "rte": 48}  # and the most tokens of an example
EXAMPLES, EPOCHS, TEST, SAMPLES = 1_280, 3, 600, 4
TUNING_TASKS, TUNING_SEED, HELD_OUT = ("sst2", "mrpc"), 100, 192
SEEDS = (0, 1, 2)
# Three settings for each method, tried on TUNING_TASKS; the one with the lowest sum of NLLs is used for all tasks.
CHOICES: dict[str, list[dict[str, float]]] = {
    "adamw": [{"lr": 5e-5}, {"lr": 1e-4}, {"lr": 2e-4}],
    "ivon": [{"lr": 0.05}, {"lr": 0.1}, {"lr": 0.2}],
}
PRIOR_DECAYS = (1e-5, 1e-3, 1e-2)
PRIORS = {"ivon": "0", "ivon-init": "the pretrained weights"}


class PretrainedPrior(IVONMethod):
    """IVON whose prior has its mean at the pretrained weights."""

    name, label = "ivon-init", "IVON, prior at the start"

    def optimizer(self, model: Any, facts: Facts) -> Any:
        optimizer = super().optimizer(model, facts)
        for group in optimizer.param_groups:
            group["prior_mean"] = "init"
        return optimizer


METHODS["ivon-init"] = PretrainedPrior


def part(task: str, tuning: bool, split: str, root: Path | None) -> Texts:
    """The first examples of a task as a set of its own: to cut all of SST-2 into tokens takes longer than a run.

    For tuning, the dev set is what follows the training examples.
    """
    texts = TEXTS[task]("train" if tuning else split, root)
    first, n = (EXAMPLES, HELD_OUT) if tuning and split != "train" else (0, EXAMPLES if split == "train" else TEST)
    return chosen_texts(texts, range(first, min(first + n, len(texts))))


for _task in TASKS:
    TEXTS[f"{_task}-part"] = partial(part, _task, False)
    TEXTS[f"{_task}-held-out"] = partial(part, _task, True)


def recipe(task: str, method: str, settings: dict[str, float], seed: int, tuning: bool = False) -> Run:
    """The recipe of the small scale, shorter."""
    run = glue(task, "roberta", "ivon" if method.startswith("ivon") else method, seed=seed)
    name = f"{task}-held-out" if tuning else f"{task}-part"
    data = replace(run.data, name=name, subset=None, context=TASKS[task])
    optim = replace(run.optim, name=method, **settings)
    evaluate = replace(run.evaluate, samples=SAMPLES, subset=None)
    train = replace(run.train, epochs=EPOCHS, precision="bf16")
    return replace(run, data=data, optim=optim, evaluate=evaluate, train=train)


def scores_of(run: Run) -> dict[str, Any]:
    """Train, predict and score in a folder that is thrown away."""
    start = time.time()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "run")
        fit(run, out, progress=False)
        if run.data.name.endswith("held-out"):  # the evaluation at the mean after the last epoch is enough
            found = {"mean": read_json_lines(out / "log.jsonl").records[-1]["eval"]}
        else:
            predict_run(out, analyse=False, progress=False)
            found = score_run(out)
    return {key: found[key] for key in ("mean", "averaged") if key in found} | {
        "seconds": round(time.time() - start, 1)
    }


def known() -> list[dict[str, Any]]:
    return [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []


def chosen(method: str, done: list[dict[str, Any]]) -> dict[str, float] | None:
    """The setting with the lowest sum of NLLs on held-out data, when all have been tried."""
    sums = []
    for settings in CHOICES[method]:
        label = {"kind": "tuning", "method": method, "settings": settings}
        found = [entry["mean"]["nll"] for entry in done if entry | label == entry]
        if len(found) < len(TUNING_TASKS):
            return None
        sums.append(sum(found))
    return CHOICES[method][sums.index(min(sums))]


def plan(done: list[dict[str, Any]], prior: bool) -> list[dict[str, Any]]:
    """What is to be run, in order."""
    if prior:
        return [
            {"kind": "prior", "task": "sst2", "method": method, "seed": seed, "settings": settings}
            for seed in SEEDS
            for decay in PRIOR_DECAYS
            for method in PRIORS
            for settings in [(chosen("ivon", done) or {}) | {"weight_decay": decay}]
        ]
    tuning = [
        {"kind": "tuning", "task": task, "method": method, "seed": TUNING_SEED, "settings": settings}
        for task in TUNING_TASKS
        for method, choices in CHOICES.items()
        for settings in choices
    ]
    best = {method: chosen(method, done) for method in CHOICES}
    final = [
        {"kind": "final", "task": task, "method": method, "seed": seed, "settings": best[method]}
        for seed in SEEDS
        for task in TASKS
        for method in CHOICES
    ]
    return final if all(best.values()) else tuning


def work(prior: bool, minutes: float) -> None:
    """Run what is missing, one line of results after the other, and start nothing after so many minutes."""
    end = time.time() + 60 * minutes
    while time.time() < end:
        done = known()
        missing = [one for one in plan(done, prior) if not any(entry | one == entry for entry in done)]
        if not missing:
            return
        one = missing[0]
        scores = scores_of(recipe(one["task"], one["method"], one["settings"], one["seed"], one["kind"] == "tuning"))
        with open(RESULTS, "a") as file:
            file.write(json.dumps(one | {"examples": EXAMPLES} | scores) + "\n")
        print(RESULTS.read_text().splitlines()[-1], flush=True)


COLUMNS = {
    "accuracy": "accuracy",
    "f1": "F1",
    "matthews": "Matthews",
    "spearman": "Spearman",
    "nll": "NLL",
    "ece": "ECE",
}


def table(rows: dict[str, list[dict[str, Any]]]) -> str:
    """Mean and standard deviation of each score."""
    lines = [f"| | n | {' | '.join(COLUMNS.values())} |", "|---" * (len(COLUMNS) + 2) + "|"]
    for label, entries in rows.items():
        cells = []
        for key in COLUMNS:
            values = [entry[key] for entry in entries if isinstance(entry.get(key), (int, float))]
            spread = f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""
            cells.append(f"{statistics.fmean(values):.3f}{spread}" if values else "")
        lines.append(f"| {label} | {len(entries)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def tables() -> None:
    """Print the tables of the README."""
    done = known()
    print("Tuning, held-out training examples, at the mean:\n")
    tuned = [entry for entry in done if entry["kind"] == "tuning"]
    print(table({f"{e['task']}: {e['method']} {e['settings']}": [e["mean"]] for e in tuned}))
    print(f"\nChosen: { {method: chosen(method, done) for method in CHOICES} }\n\nDev sets:\n")
    rows: dict[str, list[dict[str, Any]]] = {}
    for task in TASKS:
        for method, at in (("adamw", "mean"), ("ivon", "mean"), ("ivon", "averaged")):
            label = {"kind": "final", "task": task, "method": method}
            rows[f"{task}: {method}{', ' + at if method == 'ivon' else ''}"] = [
                entry[at] for entry in done if entry | label == entry
            ]
    print(table({label: entries for label, entries in rows.items() if entries}))
    print("\nPrior, SST-2, at the mean:\n")
    rows = {}
    for decay in PRIOR_DECAYS:
        for method, where in PRIORS.items():
            found = [e for e in done if e["kind"] == "prior" and e["method"] == method]
            rows[f"decay {decay:g}, prior at {where}"] = [
                entry["mean"] for entry in found if entry["settings"]["weight_decay"] == decay
            ]
    print(table({label: entries for label, entries in rows.items() if entries}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prior", action="store_true", help="compare the two priors")
    parser.add_argument("--minutes", type=float, default=35.0, help="start no run after this time")
    parser.add_argument("--table", action="store_true", help="print the tables")
    arguments = parser.parse_args()
    tables() if arguments.table else work(arguments.prior, arguments.minutes)
