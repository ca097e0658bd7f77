"""Mislabelled examples: sensitivities of one training with IVON against the loss, AUM, cross-validation and others.

python -m experiments.mislabels.run                        small networks, 2,000 examples, 15 epochs, 3 seeds
python -m experiments.mislabels.run --size full            ResNet-20, 10,000 examples, 30 epochs, 3 seeds
python -m experiments.mislabels.run --summary              prints the tables of results.jsonl

Runs what results.jsonl does not contain yet.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import varlearn
from experiments.mislabels.detectors import from_epochs, margin, qualities
from experiments.mislabels.noisy_data import LABELS, NoisyData, noisy_data
from experiments.mislabels.noisy_training import Record, Setting, out_of_sample, test_accuracy, train
from experiments.mislabels.tables import summary

RESULTS = Path(__file__).parent / "results.jsonl"
SIZES: dict[str, dict[str, int]] = {
    "small": {"n": 2_000, "epochs": 15, "n_test": 2_000, "every": 3},
    "full": {"n": 10_000, "epochs": 30, "n_test": 10_000, "every": 1},
}
TEXTS = {"n": 4_000, "n_test": 4_000}  # a small text network is fast
SEEDS = (0, 1, 2)
EARLY = 5  # the early scores are those after 1 / EARLY of the epochs


def execute(job: dict[str, Any]) -> dict[str, Any]:
    """All detectors on one set of labels with one seed, and the trainings without what they flag."""
    size = SIZES[job["size"]] | (TEXTS if (job["labels"], job["size"]) == ("ag_news", "small") else {})
    data = noisy_data(job["labels"], size["n"], size["n_test"])
    setting = Setting(job["labels"], job["size"], size["epochs"], job["seed"], size["every"])
    start = time.perf_counter()
    ivon, adamw = train(setting, data.train, "ivon"), train(setting, data.train, "adamw")
    probs, cross_seconds = out_of_sample(setting, data.train)
    unit = adamw.seconds["training"]
    scores = detectors(ivon, adamw, probs, data.train.targets, size["epochs"])
    return {
        "noise": float(data.is_wrong.double().mean()),
        "n": len(data.train),
        "passes": int(ivon.tracker.counts.max()),
        "scores": qualities(scores, data.is_wrong),
        "seconds": {"adamw": unit, "cross-validation": cross_seconds, "ivon": ivon.seconds},
        "flagged": flagged_by_cleanlab(ivon, probs, data),
        "removal": removal(setting, data, scores, adamw),
        "test accuracy": {"ivon": test_accuracy(ivon.model, data.test), "adamw": test_accuracy(adamw.model, data.test)},
        "minutes": (time.perf_counter() - start) / 60,
    }


def detectors(ivon: Record, adamw: Record, probs: Tensor, labels: Tensor, epochs: int) -> dict[str, Tensor]:
    """The score of every detector; those of IVON's own logits and of AdamW's stand apart."""
    early = max(1, epochs // EARLY)
    last, tracker = ivon.last, ivon.tracker
    assert last is not None

    def unlikely(probs: Tensor) -> Tensor:
        return -probs.gather(1, labels[:, None]).squeeze(1)

    found = {
        "sensitivity, last epoch": last.score,
        "sensitivity, accumulated": tracker.score,
        "paper's |V e|, last epoch": last.paper_score,
        "paper's |V e|, accumulated": tracker.paper_score,
        "LOO probability, last epoch": unlikely(last.loo_probs),
        "LOO probability, accumulated": unlikely(tracker.loo_probs),
        "5-fold probability": unlikely(probs),
        "5-fold margin": margin(probs.log(), labels),
    }
    found |= {f"IVON {name}": score for name, score in from_epochs(ivon.logits, labels, early).items()}
    return found | {f"AdamW {name}": score for name, score in from_epochs(adamw.logits, labels, early).items()}


def flagged_by_cleanlab(ivon: Record, probs: Tensor, data: NoisyData) -> dict[str, dict[str, float]]:
    """How many examples cleanlab flags by itself, and how many of these are wrong and found."""
    from cleanlab.filter import find_label_issues

    assert ivon.last is not None
    found = {}
    sources = {"LOO, last epoch": ivon.last.loo_probs, "LOO, accumulated": ivon.tracker.loo_probs, "5-fold": probs}
    for name, given in sources.items():
        issues = torch.from_numpy(find_label_issues(data.train.targets.numpy(), given.double().numpy()))
        hits = int((issues & data.is_wrong).sum())
        count = int(issues.sum())
        found[name] = {"count": count, "precision": hits / max(count, 1), "recall": hits / int(data.is_wrong.sum())}
    return found


def removal(setting: Setting, data: NoisyData, scores: dict[str, Tensor], whole: Record) -> dict[str, float]:
    """Test accuracy of AdamW after removing as many examples as there are wrong ones, chosen in several ways."""
    count = int(data.is_wrong.sum())
    random = torch.rand(len(data.train), generator=torch.Generator().manual_seed(1_000 + setting.seed))
    ways = {
        "at random": random,
        "sensitivity, accumulated": scores["sensitivity, accumulated"],
        "LOO probability, accumulated": scores["LOO probability, accumulated"],
        "AUM": scores["AdamW AUM"],
        "loss": scores["AdamW loss"],
        "the truth": data.is_wrong.double(),
    }
    found = {"nothing": test_accuracy(whole.model, data.test)}
    for name, score in ways.items():
        kept = score.argsort(descending=True, stable=True)[count:].sort().values
        model = train(setting, data.train.select(kept), "adamw", record=False).model
        found[name] = test_accuracy(model, data.test)
    return found


def read() -> list[dict[str, Any]]:
    return [json.loads(line) for line in RESULTS.read_text(encoding="utf8").splitlines()] if RESULTS.exists() else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=list(SIZES), default="small")
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    parser.add_argument("--labels", nargs="*", choices=LABELS, default=LABELS)
    parser.add_argument("--summary", action="store_true", help="print the tables and run nothing")
    arguments = parser.parse_args()
    if arguments.summary:
        print("\n".join(summary(read())))
        return
    torch.set_num_threads(1)
    for seed in SEEDS[: arguments.seeds]:
        for labels in arguments.labels:
            job = {"labels": labels, "size": arguments.size, "seed": seed}
            if any(all(run[key] == value for key, value in job.items()) for run in read()):
                continue
            result = {**job, **execute(job), "torch": torch.__version__, "varlearn": varlearn.__version__}
            with RESULTS.open("a", encoding="utf8") as file:
                file.write(json.dumps(result) + "\n")
            print(job, f"{result['minutes']:.1f} minutes", flush=True)


if __name__ == "__main__":
    main()
