"""The README's loop on small tables, beside AdamW at its default rate with the same schedule.

`python -m experiments.small_tables.run` resumes by reading results.jsonl, and `--table` prints the README's table.
Breast cancer, on which the loop misses its bar, is not among the sets.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn import datasets
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import varlearn
from varlearn import metrics
from varlearn.data.uci import uci
from varlearn.models import mlp
from varlearn.optim import warmup_cosine
from varlearn.optim.prior_widths import suggested_lr

RESULTS = Path(__file__).with_name("results.jsonl")
EPOCHS, BATCH, SEEDS = 20, 32, 4
ROWS, TRAINING, HELD_OUT = 900, 300, 100  # at most; of smaller sets a half is trained on and a quarter held out
Table = tuple[Any, Any]


class Method(NamedTuple):
    """A learning rate (None for the suggested one), times a factor; of VAdamW also the prior's width."""

    variational: bool
    rate: float | None = None
    factor: float = 1.0
    width: float | None = None


METHODS = {
    "AdamW 1e-3": Method(False, 1e-3),
    "AdamW, suggested rate": Method(False),
    "VAdamW": Method(True),
    "rate / 3": Method(True, factor=1 / 3),
    "rate 1e-3": Method(True, 1e-3),
    "width 1": Method(True, width=1.0),
}
BASELINE = "AdamW 1e-3"


def above_median(name: str) -> Table:
    """A UCI regression as two classes: below its median and above."""
    examples = uci(name, "train")
    targets = examples.targets.numpy()
    return np.asarray(examples.inputs), (targets > np.median(targets)).astype(int)


def diabetes() -> Table:
    """Below and above the median."""
    found: Any = datasets.load_diabetes(return_X_y=True)
    x, y = found
    return x, (y > np.median(y)).astype(int)


def made(**options: Any) -> Callable[[], Any]:
    """Clusters of scikit-learn's `make_classification`."""
    return lambda: datasets.make_classification(ROWS, **options)


SETS: dict[str, Callable[[], Any]] = {
    "wine": lambda: datasets.load_wine(return_X_y=True),
    "iris": lambda: datasets.load_iris(return_X_y=True),
    "diabetes": diabetes,
    "digits": lambda: datasets.load_digits(return_X_y=True),
    **{f"uci-{name}": (lambda name=name: above_median(f"uci-{name}")) for name in
       ("boston", "concrete", "energy", "naval", "protein", "wine", "yacht")},
    "moons": lambda: datasets.make_moons(ROWS, noise=0.3, random_state=0),
    "clusters, hard": made(n_features=20, n_informative=10, flip_y=0.05, random_state=0),
    "clusters, easy": made(n_features=30, n_informative=5, n_redundant=10, class_sep=2.0, flip_y=0.02, random_state=1),
    "clusters, linear": made(n_features=30, n_informative=8, n_redundant=10, n_clusters_per_class=1, class_sep=1.5,
                             flip_y=0.01, random_state=3),
}  # fmt: skip


def parts(name: str, seed: int) -> list[tuple[Tensor, Tensor]]:
    """Training, validation and test rows in one random order, standardized by the training rows."""
    x, y = SETS[name]()
    order = np.random.default_rng(100 + seed).permutation(len(x))[:ROWS]
    train, held_out = min(TRAINING, len(order) // 2), min(HELD_OUT, len(order) // 4)
    x, y = x[order], y[order]
    std = x[:train].std(0)
    x = (x - x[:train].mean(0)) / np.where(std > 0, std, 1.0)
    ends = (0, train, train + held_out, len(order))
    cuts = [slice(first, last) for first, last in pairwise(ends)]
    return [(torch.tensor(x[cut]).float(), torch.tensor(y[cut])) for cut in cuts]


def one(name: str, seed: int, label: str) -> dict[str, Any]:
    """Train and score on test rows."""
    method, (train, held_out, test) = METHODS[label], parts(name, seed)
    torch.manual_seed(seed)
    model = mlp(train[0].shape[1], int(train[1].max()) + 1, (50, 50))
    loader = DataLoader(TensorDataset(*train), batch_size=BATCH, shuffle=True)
    rate = (method.rate or suggested_lr(model)) * method.factor
    if not method.variational:
        point = torch.optim.AdamW(model.parameters(), lr=rate)
        _train(model, loader, point, warmup_cosine(point, EPOCHS * len(loader)))
        with torch.no_grad():
            log_probs = model(test[0]).log_softmax(1)
        return _row(name, seed, label, rate, log_probs, test[1])
    opt = varlearn.VAdamW.for_loader(model, loader, rate, epochs=EPOCHS, prior_width=method.width, seed=seed)
    _train(model, loader, opt, warmup_cosine(opt))
    posterior = varlearn.DiagGaussian.from_optimizer(model, opt)
    posterior = varlearn.calibrate(model, posterior, [held_out])
    found = varlearn.predict(model, posterior, [test], samples=64, progress=False)
    return _row(name, seed, label, rate, found.log_probs, test[1]) | {"temperature": posterior.temperature}


def _train(model: nn.Module, loader: DataLoader[Any], opt: torch.optim.Optimizer, schedule: Any) -> None:
    for _ in range(EPOCHS):
        for x, y in loader:
            if isinstance(opt, varlearn.VAdamW):
                with opt.sampled_params(train=True):
                    opt.zero_grad()
                    nn.functional.cross_entropy(model(x), y).backward()
            else:
                opt.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
            opt.step()
            schedule.step()


def _row(name: str, seed: int, label: str, rate: float, log_probs: Tensor, targets: Tensor) -> dict[str, Any]:
    scores = {"nll": metrics.nll(log_probs, targets), "accuracy": metrics.accuracy(log_probs, targets)}
    return {"set": name, "seed": seed, "method": label, "rate": round(rate, 6)} | {
        key: round(value, 5) for key, value in scores.items()
    }


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Lines of Markdown: NLL by set and method, and the geometric mean of its ratio to the baseline's."""
    means = {
        (name, label): statistics.fmean(r["nll"] for r in rows if (r["set"], r["method"]) == (name, label))
        for name in SETS
        for label in METHODS
    }
    lines = [f"| set | {' | '.join(METHODS)} |", "|---" * (len(METHODS) + 1) + "|"]
    for name in SETS:
        lines.append(f"| {name} | {' | '.join(f'{means[name, label]:.3f}' for label in METHODS)} |")
    logs = {label: [math.log(means[name, label] / means[name, BASELINE]) for name in SETS] for label in METHODS}
    ratios = [f"{math.exp(statistics.fmean(found)):.2f}" for found in logs.values()]
    worse = [str(sum(value > 0 for value in found)) for found in logs.values()]
    return [*lines, f"| ratio | {' | '.join(ratios)} |", f"| worse on | {' | '.join(worse)} |"]


def main() -> None:
    """Run what `results.jsonl` lacks, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    rows = [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
    if args.table:
        print("\n".join(table(rows)))
        return
    done = {(row["set"], row["seed"], row["method"]) for row in rows}
    for seed in range(SEEDS):
        for name in SETS:
            for label in METHODS:
                if (name, seed, label) not in done:
                    with RESULTS.open("a") as file:
                        file.write(json.dumps(one(name, seed, label)) + "\n")


if __name__ == "__main__":
    main()
