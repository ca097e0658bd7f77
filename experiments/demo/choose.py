"""Choose the demo's network and the baselines' learning rates by cross-validation; no test image is read.

python -m experiments.demo.choose             runs what choice.jsonl does not contain yet, then prints the tables
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from experiments.no_tuning.library import Variational
from experiments.no_tuning.tasks import Part, Parts, Task
from experiments.no_tuning.training import Average, Baseline, Method, outputs_of, score, train
from varlearn import data, metrics
from varlearn.models import mlp, small_cnn

RESULTS = Path(__file__).parent / "choice.jsonl"
FOLDS = range(5)  # of 200 of the 1,000 training images, each judged once
SIZES = {"600 + 200": (600, 200), "400 + 400": (400, 400), "200 + 400": (200, 400)}  # images to train, to calibrate
SEED = 10  # plus the fold
SCALES = (0.0, 0.25, 0.5, 0.71, 1.0, 1.41, 2.0, 2.83)
NETWORKS: dict[str, Callable[[], nn.Module]] = {"mlp": lambda: mlp(64, 10, (100, 100)), "small_cnn": small_cnn}
RATES = {"vadamw": (None,), "sgd": (0.01, 0.03, 0.1, 0.3, 1.0), "adamw": (3e-4, 1e-3, 3e-3, 1e-2, 3e-2)}
MEASURES = {"nll": -1, "ece": -1, "upside down": 1, "noise": 1}  # sign: whether more is better
Result = dict[str, Any]


def images(chosen: Tensor | slice, kind: str = "") -> Part:
    """Training images of the digits, normalised; upside down or noise by name."""
    examples = data.load("digits", "train")
    assert isinstance(examples.inputs, Tensor)
    pixels = examples.inputs.flip(2) if kind == "upside down" else examples.inputs
    if kind == "noise":  # the same pixels in random places
        order = torch.randperm(pixels.numel(), generator=torch.Generator().manual_seed(0))
        pixels = pixels.flatten()[order].view_as(pixels)
    inputs = (pixels.float() / 255 - examples.mean[0]) / examples.std[0]
    return Part(inputs[chosen].to(memory_format=torch.channels_last), examples.targets[chosen])


def fold_index(size: str, fold: int) -> tuple[Tensor, Tensor, Tensor]:
    """Numbers of the images to train on, to calibrate with and to judge by."""
    trained, calibrating = SIZES[size]
    order = torch.arange(1_000).roll(-200 * fold)
    return order[200 + calibrating :][:trained], order[200 : 200 + calibrating], order[:200]


def task(network: str, size: str) -> Task:
    """1,200 steps of 50 images, as the demo takes them; the seed names the fold."""
    return Task(
        lambda seed: Parts(*(images(index) for index in fold_index(size, seed - SEED))),
        NETWORKS[network],
        batch=50,
        passes=1_200 * 50 / SIZES[size][0],
        rates={},
    )


def answers(model: nn.Module, method: Method, the_task: Task, part: Part, scale: float) -> Tensor:
    """Averaged log-probabilities (N, 10)."""
    average = Average()
    for number in range(the_task.samples if scale else 1):
        method.show(scale, number)
        average.add(the_task, outputs_of(model, part), part.targets)
    assert average.logs is not None
    return average.logs.log_softmax(-1)


def bins(log_probs: Tensor, targets: Tensor) -> list[float]:
    """Of 15 bins of confidence: sums of correct - confidence. The ECE of several folds is made of their sums."""
    confidence, guess = log_probs.exp().max(-1)
    gaps = (guess == targets).double() - confidence.double()
    number = (confidence * 15).ceil().long().clamp(1, 15) - 1
    return torch.zeros(15, dtype=torch.float64).index_add(0, number, gaps).tolist()


def judge(network: str, size: str, method: str, rate: float | None, fold: int) -> Result:
    """Train, calibrate, and score the 200 images of the fold, by way of prediction."""
    the_task, seed = task(network, size), SEED + fold
    parts = the_task.data(seed)

    def method_of(model: nn.Module) -> Method:
        if rate is None:
            return Variational(model, the_task, parts, {"seed": seed})
        return Baseline(method, model, rate)

    model, trained, finite = train(the_task, parts, seed, method_of)
    result: Result = {"network": network, "size": size, "method": method, "rate": rate, "fold": fold}
    trained.show(0.0, 0)
    if not finite or not bool(outputs_of(model, parts.test).isfinite().all()):
        return result | {"diverged": True}
    scales = {"mean": 0.0}
    if trained.has_posterior:
        fits = {
            scale: score(the_task, model, trained, parts, ("validation",), scale, the_task.samples)["validation"]["nll"]
            for scale in SCALES
        }
        scales |= {"averaged": 1.0, "calibrated": min(fits, key=lambda scale: fits[scale])}
    judged = fold_index(size, fold)[2]
    for way, scale in scales.items():
        found = {
            kind: answers(model, trained, the_task, images(judged, kind), scale)
            for kind in ("", "upside down", "noise")
        }
        if any(bool(log_probs.isnan().any()) for log_probs in found.values()):
            return result | {"diverged": True}
        sure = metrics.max_log_prob(found[""])
        targets = parts.test.targets
        result[way] = {"nll": metrics.nll(found[""], targets), "bins": bins(found[""], targets)} | {
            kind: metrics.auroc(sure, metrics.max_log_prob(found[kind])) for kind in ("upside down", "noise")
        }
    return result | {"scale": scales.get("calibrated")}


Row = tuple[str, float | None, str]  # method, rate, way of prediction


def scores(results: list[Result], network: str, size: str, row: Row) -> dict[str, float]:
    """Means over the folds, and the ECE of all folds together; infinite if one diverged."""
    runs = [r for r in results if (r["network"], r["size"], r["method"], r["rate"]) == (network, size, *row[:2])]
    if not runs or any(row[2] not in run for run in runs):
        return dict.fromkeys(MEASURES, float("inf"))
    found = {name: statistics.fmean(run[row[2]][name] for run in runs) for name in MEASURES if name != "ece"}
    sums = torch.tensor([run[row[2]]["bins"] for run in runs]).sum(0)
    return found | {"ece": float(sums.abs().sum()) / (200 * len(runs))}


def best_rate(results: list[Result], network: str, size: str, method: str) -> float | None:
    """The rate with the lowest mean NLL over the folds."""
    return min(RATES[method], key=lambda rate: scores(results, network, size, (method, rate, "mean"))["nll"])


def table(results: list[Result], network: str, size: str) -> list[str]:
    """The rows of a network and a size, and how many of the twelve comparisons the calibrated average wins."""
    rows: dict[str, Row] = {
        "SGD": ("sgd", best_rate(results, network, size, "sgd"), "mean"),
        "AdamW": ("adamw", best_rate(results, network, size, "adamw"), "mean"),
        "VAdamW, mean": ("vadamw", None, "mean"),
        "VAdamW, average": ("vadamw", None, "averaged"),
        "VAdamW, calibrated": ("vadamw", None, "calibrated"),
    }
    found = {name: scores(results, network, size, row) for name, row in rows.items()}
    ours = found["VAdamW, calibrated"]
    wins = sum(
        sign * (ours[measure] - found[name][measure]) > 0
        for name in ("SGD", "AdamW", "VAdamW, mean")
        for measure, sign in MEASURES.items()
    )
    lines = ["", f"{network}, {size} images: the calibrated average is better in {wins} of 12 comparisons", ""]
    lines += [f"| | rate | {' | '.join(MEASURES)} |", "|---" * (2 + len(MEASURES)) + "|"]
    for name, row in rows.items():
        cells = " | ".join(f"{found[name][measure]:.4f}" for measure in MEASURES)
        lines.append(f"| {name} | {row[1] or ''} | {cells} |")
    return lines


def main() -> None:
    torch.set_num_threads(1)
    results = [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
    known = {(r["network"], r["size"], r["method"], r["rate"], r["fold"]) for r in results}
    for method, rates in RATES.items():
        for job in product(NETWORKS, SIZES, (method,), rates, FOLDS):
            if job not in known:
                results.append(judge(*job))
                with RESULTS.open("a", encoding="utf8") as file:
                    file.write(json.dumps(results[-1]) + "\n")
    for network, size in product(NETWORKS, SIZES):
        print("\n".join(table(results, network, size)))


if __name__ == "__main__":
    main()
