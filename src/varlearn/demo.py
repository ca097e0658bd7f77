"""`python -m varlearn.demo`: IVON beside AdamW on scikit-learn's handwritten digits, scored at the mean and averaged.

1,000 training images, 797 test images, a small convolutional network, 1,200 steps of 50 images, cosine schedule. AdamW
gets the best of five learning rates; IVON takes `presets.auto` as it is.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import AdamW, Optimizer

from varlearn import presets
from varlearn.metrics import accuracy, ece, nll
from varlearn.optim import IVON
from varlearn.posterior import DiagGaussian
from varlearn.predict import predict

TRAIN, BATCH = 1_000, 50
ADAMW_LR = 1e-2  # the best in NLL of 3e-4, 1e-3, 3e-3, 1e-2, 3e-2

Split = tuple[Tensor, Tensor]
Scores = dict[str, float]


def load_digits() -> tuple[Split, Split]:
    """scikit-learn's 1,797 digits as normalized (N, 1, 8, 8) images, in a fixed order: training and test split."""
    try:
        from sklearn import datasets
    except ImportError:
        raise SystemExit("the demo reads scikit-learn's digits; pip install 'varlearn[demo]'") from None
    pixels, classes = datasets.load_digits(return_X_y=True)
    images, labels = torch.tensor(pixels, dtype=torch.float32).view(-1, 8, 8), torch.tensor(classes)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    images, labels = images[order].unsqueeze(1), labels[order]
    images = (images - images[:TRAIN].mean()) / images[:TRAIN].std()
    return (images[:TRAIN], labels[:TRAIN]), (images[TRAIN:], labels[TRAIN:])


def network() -> nn.Module:
    """Three convolutions and a linear layer: 15,338 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1, stride=2),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(128, 10),
    )


def fit(optimizer: Callable[[nn.Module], Optimizer], data: Split, steps: int, seed: int) -> tuple[nn.Module, Optimizer]:
    """Train a fresh network: initialization, batches and noise are decided by `seed`."""
    torch.manual_seed(seed)
    model = network()
    opt = optimizer(model)
    schedule = torch.optim.lr_scheduler.LambdaLR(opt, lambda t: 0.5 * (1.0 + math.cos(math.pi * t / steps)))
    order = torch.Generator().manual_seed(seed)
    images, labels = data
    batches: list[Tensor] = []
    for _ in range(steps):
        if not batches:
            batches = list(torch.randperm(len(images), generator=order).split(BATCH))
        batch = batches.pop()

        def loss() -> float:
            opt.zero_grad()
            value = F.cross_entropy(model(images[batch]), labels[batch])  # noqa: B023
            value.backward()
            return value.item()

        opt.step(loss)
        schedule.step()
    return model, opt


def score(log_probs: Tensor, targets: Tensor) -> Scores:
    """Accuracy in per cent, NLL, ECE."""
    return {
        "accuracy": 100.0 * accuracy(log_probs, targets),
        "nll": nll(log_probs, targets),
        "ece": ece(log_probs, targets),
    }


@torch.no_grad()
def at_mean(model: nn.Module, test: Split) -> Scores:
    """The scores of the weights as they are."""
    return score(model(test[0]).log_softmax(1), test[1])


def compare(steps: int, seeds: int, samples: int) -> dict[str, list[Scores]]:
    """Row of the table -> scores of each seed."""
    train, test = load_digits()
    rows: dict[str, list[Scores]] = {
        f"AdamW, lr {ADAMW_LR:g}": [],
        "IVON at the mean": [],
        f"IVON, {samples} samples": [],
    }
    adamw_row, mean_row, average_row = rows
    settings = presets.auto(n=len(train[0]), steps=steps)
    for seed in range(seeds):
        model, _ = fit(lambda model: AdamW(model.parameters(), lr=ADAMW_LR), train, steps, seed)
        rows[adamw_row].append(at_mean(model, test))
        model, opt = fit(lambda model: IVON(model.parameters(), **settings), train, steps, seed)
        rows[mean_row].append(at_mean(model, test))
        posterior = DiagGaussian.from_optimizer(model, opt)
        predictions = predict(model, posterior, [test], samples=samples, seed=seed)
        rows[average_row].append(score(predictions.log_probs, test[1]))
    return rows


def main(arguments: list[str] | None = None) -> int:
    """Run the comparison and print it."""
    parser = argparse.ArgumentParser(prog="python -m varlearn.demo", description="IVON beside AdamW on small digits.")
    parser.add_argument("--steps", type=int, default=1_200, help="training steps of 50 images (default 1200)")
    parser.add_argument("--seeds", type=int, default=5, help="runs to average over (default 5)")
    parser.add_argument("--samples", type=int, default=64, help="posterior samples to average over (default 64)")
    options = parser.parse_args(arguments)
    for name in ("steps", "seeds", "samples"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} {getattr(options, name)} must be at least 1")
    started = time.perf_counter()
    print(f"Training AdamW and IVON on 1,000 digits, {options.steps} steps, {options.seeds} seed(s) ...", flush=True)
    rows = compare(options.steps, options.seeds, options.samples)
    print(f"\n{'on 797 test images':24}{'accuracy %':>16}{'NLL':>18}{'ECE':>18}")
    for name, runs in rows.items():
        cells = [
            _cell([run[metric] for run in runs], digits) for metric, digits in (("accuracy", 2), ("nll", 4), ("ece", 4))
        ]
        print(f"{name:24}{cells[0]:>16}{cells[1]:>18}{cells[2]:>18}")
    print(f"\nmean and standard deviation over seeds; {time.perf_counter() - started:.0f} s")
    return 0


def _cell(values: list[float], digits: int) -> str:
    mean = f"{statistics.fmean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.{digits}f}"


if __name__ == "__main__":
    sys.exit(main())
