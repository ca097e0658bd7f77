"""A character GPT of 3.2 M parameters: variational AdamW untuned against AdamW at the best of five rates.

python -m experiments.gpt_3m.run             runs what results.jsonl does not contain yet
python -m experiments.gpt_3m.run --summary   prints the table
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import statistics
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import varlearn
from experiments.no_tuning.library import Variational
from experiments.no_tuning.tasks import CHARACTERS, Parts, Task, shakespeare
from experiments.no_tuning.training import Baseline, Method
from experiments.no_tuning.training import run as train_and_score
from varlearn.models import GPT2

RESULTS = Path(__file__).parent / "results.jsonl"
CONTEXT, BATCH = 128, 8
CHARACTERS_OF = (900_000, 16_384, 32_768)  # of training, validation and test text
RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
SCALES = (1.0, 2.0)  # of the posterior's std, besides 0, the mean
TUNING_SEED, SEEDS = 10, (0, 1, 2)
SHORT, LONG = 1_000, 4_000  # steps
Run = dict[str, Any]


class CharacterGPT(GPT2):
    """Four layers of width 256 on characters. Training uses bf16 autocast, 2.3 times faster; scores are float32."""

    def __init__(self) -> None:
        super().__init__(layers=4, heads=4, width=256, vocab=CHARACTERS, context=CONTEXT)

    def forward(self, tokens: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=self.training):
            logits = super().forward(tokens)
        return logits.float()


def task(steps: int) -> Task:
    """The network and the text; `passes` makes the run `steps` long."""
    windows = len(shakespeare(CONTEXT, CHARACTERS_OF).train.inputs)
    return Task(
        lambda seed: shakespeare(CONTEXT, CHARACTERS_OF),
        CharacterGPT,
        batch=BATCH,
        passes=steps * BATCH / windows,
        rates={"adamw": RATES},
        kind="tokens",
        samples=4,
    )


def queue() -> list[Run]:
    """Tuning, then the short runs of all seeds, then the long ones; AdamW without a rate has the tuned one."""
    jobs: list[Run] = [{"method": "adamw", "steps": SHORT, "seed": TUNING_SEED, "rate": rate} for rate in RATES]
    for steps in (SHORT, LONG):
        for seed in SEEDS:
            jobs += [{"method": method, "steps": steps, "seed": seed} for method in ("vadamw", "adamw")]
    return jobs


def tuned_rate(results: list[Run]) -> float:
    """AdamW's rate with the lowest validation NLL after the short run of the tuning seed."""
    seen = {
        run["rate"]: run["validation"]["mean"]["nll"] if "validation" in run else math.inf
        for run in results
        if run["seed"] == TUNING_SEED
    }
    return min(seen, key=lambda rate: seen[rate])


def read() -> list[Run]:
    return [json.loads(line) for line in RESULTS.read_text(encoding="utf8").splitlines()] if RESULTS.exists() else []


def has_run(job: Run, results: list[Run]) -> bool:
    return any(all(run.get(key) == value for key, value in job.items()) for run in results)


def execute(job: Run) -> Run:
    def method_of(model: nn.Module, parts: Parts) -> Method:
        if job["method"] == "adamw":
            return Baseline("adamw", model, job["rate"])
        return Variational(model, task(job["steps"]), parts, job)

    return train_and_score(task(job["steps"]), job["seed"], method_of, scales=SCALES)


def summary(results: list[Run]) -> list[str]:
    """Test perplexity per character, and the ratio of the two methods, by steps and seed."""
    lines = [
        "| steps | seed | AdamW | VAdamW, mean | VAdamW, average | VAdamW, calibrated | calibrated / AdamW |",
        "|---|---|---|---|---|---|---|",
    ]
    for steps in (SHORT, LONG):
        ratios = []
        for seed in SEEDS:
            runs = {run["method"]: run for run in results if (run["steps"], run["seed"]) == (steps, seed)}
            if set(runs) != {"adamw", "vadamw"}:
                continue
            baseline = math.exp(runs["adamw"]["test"]["mean"]["nll"])
            ours = {way: math.exp(scores["nll"]) for way, scores in runs["vadamw"]["test"].items()}
            ratios.append(ours["calibrated"] / baseline)
            cells = [f"{baseline:.3f}", *(f"{ours[way]:.3f}" for way in ("mean", "averaged", "calibrated"))]
            lines.append(f"| {steps} | {seed} | {' | '.join(cells)} | {ratios[-1]:.4f} |")
        if len(ratios) > 1:
            lines.append(f"| {steps} | mean of {len(ratios)} | | | | | {statistics.fmean(ratios):.4f} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--summary", action="store_true", help="print the table and run nothing")
    if parser.parse_args().summary:
        print("\n".join(summary(read())))
        return
    torch.set_num_threads(1)
    versions = {"torch": torch.__version__, "varlearn": varlearn.__version__, "python": platform.python_version()}
    for job in queue():
        results = read()
        if has_run(job, results):
            continue
        if job["method"] == "adamw" and "rate" not in job:
            job = job | {"rate": tuned_rate(results)}
        with RESULTS.open("a", encoding="utf8") as file:
            file.write(json.dumps(execute(job) | job | versions) + "\n")


if __name__ == "__main__":
    main()
