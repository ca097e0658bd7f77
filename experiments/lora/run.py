"""Adapters of stories15M on SST-2 as a question with two answers, AdamW against IVON; see README.md.

python -m experiments.lora.run --model DIR    the tuning, then the seeds; goes on where it stopped
python -m experiments.lora.run --table        the tables of README.md
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from torch.nn.functional import cross_entropy

from varlearn import IVON, Point, data, presets
from varlearn.integrations.peft import adapter_posterior
from varlearn.prediction import AnswerTokens, answer_logits, predict, score

RESULTS = Path(__file__).with_name("results.jsonl")
TRAIN, HELD_OUT, BATCH, TOKENS, SAMPLES = 2_048, 512, 8, 24, 8
WORDS = (" sad", " happy")
TUNING_SEED, SEEDS = 100, (0, 1, 2)
CHOICES: dict[str, list[dict[str, float]]] = {
    "adamw": [{"lr": 3e-4}, {"lr": 1e-3}, {"lr": 3e-3}, {"lr": 1e-2}],
    "ivon": [{"lr": lr, "ess": 1e7} for lr in (0.1, 0.3, 1.0, 3.0)] + [{"lr": lr, "ess": 1e8} for lr in (0.1, 0.3)],
}

Batch = tuple[dict[str, Any], torch.Tensor]


class Task:
    """The sentences as questions, and the tokens of the answers."""

    def __init__(self, folder: str) -> None:
        from transformers import AutoTokenizer

        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.answers = tuple(self._answer(word) for word in WORDS)
        train, dev = data.texts("sst2", "train"), data.texts("sst2", "dev")
        order = torch.randperm(len(train), generator=torch.Generator().manual_seed(0)).tolist()[: TRAIN + HELD_OUT]
        self.train = [(train.texts[row], int(train.targets[row])) for row in order[:TRAIN]]
        self.held_out = [(train.texts[row], int(train.targets[row])) for row in order[TRAIN:]]
        self.test = list(zip(dev.texts, dev.targets.tolist(), strict=True))

    def _answer(self, word: str) -> int:
        with_word, without = self._ids(f"I felt{word}"), self._ids("I felt")
        if len(with_word) != len(without) + 1:
            raise ValueError(f"{word!r} is {len(with_word) - len(without)} tokens and must be one; choose another word")
        return with_word[-1]

    def _ids(self, text: str) -> list[int]:
        return self.tokenizer(text)["input_ids"]

    def batch(self, rows: list[tuple[str, int]]) -> Batch:
        """Questions padded on the left; the model returns the logits of the last token alone."""
        end = self._ids("I felt")[1:]  # without the token that begins a text
        questions = [self._ids(text)[: TOKENS - len(end)] + end for text, _ in rows]
        width = max(map(len, questions))
        ids = torch.tensor([[0] * (width - len(row)) + row for row in questions])
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in questions])
        labels = torch.tensor([label for _, label in rows])
        return {"input_ids": ids, "attention_mask": mask, "logits_to_keep": 1}, labels

    def loader(self, rows: list[tuple[str, int]]) -> list[Batch]:
        return [self.batch(rows[start : start + 64]) for start in range(0, len(rows), 64)]


def adapters(folder: str) -> Any:
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    layers = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    config = LoraConfig(task_type="CAUSAL_LM", r=8, lora_alpha=16, lora_dropout=0.1, target_modules=layers)
    return get_peft_model(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32), config)


def run(task: Task, folder: str, method: str, settings: dict[str, float], seed: int, tested: Any) -> dict[str, Any]:
    """Train once and score at the mean, and averaged for IVON."""
    start = time.time()
    torch.manual_seed(seed)
    model = adapters(folder)
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    steps = TRAIN // BATCH
    if method == "ivon":
        optimizer: Any = IVON(weights, **(presets.lora(TRAIN, steps) | settings), seed=seed)
    else:
        optimizer = torch.optim.AdamW(weights, lr=settings["lr"], weight_decay=0.01)
    peak = settings["lr"]
    model.train()
    for step, rows in enumerate(torch.randperm(TRAIN).split(BATCH)):
        inputs, labels = task.batch([task.train[row] for row in rows.tolist()])
        for group in optimizer.param_groups:
            group["lr"] = peak * min(1.0, (step + 1) / (steps / 10), (steps - step) / (0.9 * steps))
        if method == "ivon":
            with optimizer.sampled_params(train=True):
                cross_entropy(answer_logits(model(**inputs).logits, inputs, task.answers), labels).backward()
        else:
            cross_entropy(answer_logits(model(**inputs).logits, inputs, task.answers), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
    posterior = (
        adapter_posterior(model, optimizer)
        if method == "ivon"
        else Point(
            {name: weight.detach().clone() for name, weight in model.named_parameters() if weight.requires_grad},
            fixed=None,
        )
    )
    loader, found = task.loader(tested), {}
    for name, source in {"mean": Point(posterior.mean, fixed=None), "averaged": posterior}.items():
        if name == "mean" or method == "ivon":
            predictions = predict(model, AnswerTokens(source, task.answers), loader, 1 if name == "mean" else SAMPLES)
            found[name] = score(predictions)
    return found | {"seconds": round(time.time() - start, 1)}


def known() -> list[dict[str, Any]]:
    return [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []


def chosen(method: str, done: list[dict[str, Any]]) -> dict[str, float] | None:
    """The setting with the lowest NLL on held-out data, when all have been tried."""
    tried = [entry for entry in done if entry["kind"] == "tuning" and entry["method"] == method]
    if len(tried) < len(CHOICES[method]):
        return None
    return min(tried, key=lambda entry: entry.get("averaged", entry["mean"])["nll"])["settings"]


def plan(done: list[dict[str, Any]]) -> list[dict[str, Any]]:
    tuning = [
        {"kind": "tuning", "method": method, "seed": TUNING_SEED, "settings": settings}
        for method, choices in CHOICES.items()
        for settings in choices
    ]
    best = {method: chosen(method, done) for method in CHOICES}
    final = [
        {"kind": "final", "method": method, "seed": seed, "settings": best[method]}
        for seed in SEEDS
        for method in CHOICES
    ]
    return final if all(best.values()) else tuning


def work(folder: str, minutes: float) -> None:
    """Run what is missing, and start nothing after so many minutes."""
    end, task = time.time() + 60 * minutes, Task(folder)
    while time.time() < end:
        done = known()
        missing = [one for one in plan(done) if not any(entry | one == entry for entry in done)]
        if not missing:
            return
        one = missing[0]
        tested = task.held_out if one["kind"] == "tuning" else task.test
        found = run(task, folder, one["method"], one["settings"], one["seed"], tested)
        with open(RESULTS, "a") as file:
            file.write(json.dumps(one | found) + "\n")
        print(json.dumps(one | found), flush=True)


def tables() -> None:
    """Print the tables of the README."""
    done = known()
    print("| | n | accuracy | NLL | ECE | Brier |\n|---|---|---|---|---|---|")
    for entry in done:
        if entry["kind"] == "tuning":
            for at in ("mean", "averaged"):
                row(f"tuning: {entry['method']} {entry['settings']}, {at}", [entry[at]] if at in entry else [])
    for method in CHOICES:
        for at in ("mean", "averaged"):
            found = [entry for entry in done if entry["kind"] == "final" and entry["method"] == method]
            row(f"{method}, {at}", [entry[at] for entry in found if at in entry])


def row(label: str, entries: list[dict[str, float]]) -> None:
    """Mean and standard deviation of each score, if there are any."""
    cells = []
    for key in ("accuracy", "nll", "ece", "brier"):
        values = [entry[key] for entry in entries]
        spread = f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""
        cells += [f"{statistics.fmean(values):.3f}{spread}"] if values else []
    if cells:
        print(f"| {label} | {len(entries)} | {' | '.join(cells)} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="folder of stories15M")
    parser.add_argument("--minutes", type=float, default=35.0, help="start no run after this time")
    parser.add_argument("--table", action="store_true", help="print the tables")
    arguments = parser.parse_args()
    if not arguments.table and not arguments.model:
        parser.error("--model is missing: the folder of stories15M")
    tables() if arguments.table else work(arguments.model, arguments.minutes)
