"""Merge what `train` has trained with each method, choose alpha on validation data, and test; see README.md.

python -m experiments.merging.compare --data DIR --models runs/merging
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import varlearn
from experiments.merging.finetuning import Classifier, scores, tokenizer
from experiments.merging.reviews import ALL, BASE, TASKS, Batch, Task, batches, load
from experiments.merging.shuffled_curvature import shuffled
from experiments.merging.train import note_in, rows_of
from varlearn.merging import input_grams, squared_gradients
from varlearn.posterior import DiagGaussian, Point
from varlearn.posterior import load as read_posterior
from varlearn.types import Params

RESULTS = Path(__file__).with_name("results.jsonl")
EXAMPLES = 128  # of the SG pass and of RegMean's inputs
ALPHAS = (0.3, 0.6, 1.0)
PER_TASK = 60  # validation sentences of each task that choose alpha


@dataclass
class Models:
    """The models of one seed and optimizer, with what the methods need besides."""

    kind: str
    posteriors: list[DiagGaussian]
    squares: list[Params]
    grams: list[Params]


def methods(models: Models, base: Params, base_squares: Params) -> dict[str, Callable[[float], Params]]:
    """From alpha to merged weights."""
    points = [Point(one.mean) for one in models.posteriors]
    h0 = base_squares

    def curved(hess: list[Params] | None) -> Callable[[float], Params]:
        given: Any = models.posteriors if hess is None else points
        return lambda alpha: varlearn.merge(base, given, alpha=alpha, hess=hess, base_hess=h0)

    own = [shuffled(summed(one), place) for place, one in enumerate(models.posteriors)]
    return {
        "average": lambda alpha: varlearn.merge(base, points, method="average"),
        "task_arithmetic": lambda alpha: varlearn.merge(base, points, method="task_arithmetic", alpha=alpha),
        "hessian, own": curved(None),
        "hessian, own shuffled": curved(own),
        "hessian, SG": curved(models.squares),
        "hessian, SG shuffled": curved([shuffled(one, place) for place, one in enumerate(models.squares)]),
        "regmean": lambda alpha: varlearn.merge(base, points, method="regmean", inputs=models.grams),
        "ties": lambda alpha: varlearn.merge(base, points, method="ties", alpha=alpha),
    }


def summed(posterior: DiagGaussian) -> Params:
    """Its curvature of the sum of the losses: n h, or n B v of AdamW."""
    n, size = posterior.origin.n or 0, posterior.origin.batch_size or 0
    if posterior.origin.curvature == "sqrt_v":
        return {name: n * size * one.square() for name, one in posterior.hess.items()}
    return {name: n * one for name, one in posterior.hess.items()}


def squares(model: Classifier, weights: Params, task: Task) -> tuple[Params, float]:
    """The SG estimate from EXAMPLES sentences, scaled to all; and the seconds that the whole pass would take."""
    model.load_state_dict(weights, strict=False)
    model.eval()
    start = time.perf_counter()
    found = squared_gradients(model, batches(task.train[:EXAMPLES], 16))
    scale = len(task.train) / EXAMPLES
    return {name: one * scale for name, one in found.items()}, (time.perf_counter() - start) * scale


def prepared(
    model: Classifier, kind: str, seed: int, folder: Path, tasks: dict[str, Task]
) -> tuple[Models, list[float]]:
    posteriors = [read_posterior(folder / f"{kind}-{name}-{seed}.safetensors") for name in TASKS]
    found, seconds, grams = list[Params](), list[float](), list[Params]()
    for name, posterior in zip(TASKS, posteriors, strict=True):
        one, took = squares(model, posterior.mean, tasks[name])
        found.append(one)
        seconds.append(took)
        grams.append(input_grams(model, batches(tasks[name].train[:EXAMPLES], 16)))
    return Models(kind, posteriors, found, grams), seconds


def rated(model: Classifier, weights: Params, parts: dict[str, list[Batch]]) -> dict[str, dict[str, float]]:
    model.load_state_dict(weights, strict=False)
    return {name: scores(model, part) for name, part in parts.items()}


def mean(found: dict[str, dict[str, float]], key: str = "accuracy") -> float:
    return sum(one[key] for one in found.values()) / len(found)


def distance(first: list[Params], second: list[DiagGaussian]) -> list[float]:
    """Rank correlation of two curvatures over all weights that SG has seen."""
    out = []
    for one, posterior in zip(first, second, strict=True):
        own = summed(posterior)
        a = torch.cat([one[name].flatten() for name in own])
        b = torch.cat([own[name].flatten() for name in own])
        seen = (a > 0).nonzero().flatten()
        seen = seen[torch.randperm(len(seen), generator=torch.Generator().manual_seed(0))[:200_000]]
        out.append(rank_correlation(a[seen], b[seen]))
    return out


def rank_correlation(first: Tensor, second: Tensor) -> float:
    """Spearman's."""
    ranks = torch.stack([one.double().argsort().argsort().double() for one in (first, second)])
    return torch.corrcoef(ranks)[0, 1].item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--models", type=Path, default=Path("runs/merging"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--kinds", nargs="+", default=["ivon", "adamw"])
    options = parser.parse_args()
    words, model = tokenizer(), Classifier()
    tasks = {name: load(options.data, name, words) for name in ALL}
    choosing = {name: batches(task.validation[:PER_TASK], 40) for name, task in tasks.items()}
    testing = {name: batches(task.test, 50) for name, task in tasks.items()}
    base = read_posterior(options.models / "base.safetensors")
    assert isinstance(base, DiagGaussian)
    base_squares, _ = squares(model, base.mean, tasks[BASE])
    done = {(row["kind"], row["seed"], row["method"]) for row in rows_of(RESULTS)}
    if ("base", 0, "none") not in done:
        note_in(RESULTS, {"kind": "base", "seed": 0, "method": "none", "test": rated(model, base.mean, testing)})
    for kind in options.kinds:
        for seed in options.seeds:
            models, seconds = prepared(model, kind, seed, options.models, tasks)
            if (kind, seed, "single models") not in done:
                own = zip(TASKS, models.posteriors, strict=True)
                single = {name: rated(model, one.mean, {name: testing[name]})[name] for name, one in own}
                facts = {"sg_seconds": seconds, "rank_correlation": distance(models.squares, models.posteriors)}
                note_in(RESULTS, {"kind": kind, "seed": seed, "method": "single models", "test": single} | facts)
            for name, merged in methods(models, dict(base.mean), base_squares).items():
                if (kind, seed, name) in done:
                    continue
                alphas = (1.0,) if name in ("average", "regmean") else ALPHAS
                tried = {alpha: rated(model, merged(alpha), choosing) for alpha in alphas}
                best = max(alphas, key=lambda alpha: (mean(tried[alpha]), -mean(tried[alpha], "nll")))
                validation = {str(alpha): [mean(one), mean(one, "nll")] for alpha, one in tried.items()}
                row = {"kind": kind, "seed": seed, "method": name, "alpha": best, "validation": validation}
                note_in(RESULTS, row | {"test": rated(model, merged(best), testing)})
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
