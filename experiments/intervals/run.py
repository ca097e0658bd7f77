"""Coverage of 90% intervals on UCI sets by `varlearn.fit` with its defaults: no validation data, no settings."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import varlearn
from varlearn import metrics
from varlearn.data.uci import SHAPES, uci
from varlearn.prediction import RegressionPredictions
from varlearn.train.tasks import MeanVariance

RESULTS = Path(__file__).with_name("results.jsonl")
SETS = ("uci-boston", "uci-concrete", "uci-energy", "uci-wine", "uci-yacht")
EPOCHS, BATCH, HIDDEN = 40, 32, 50  # those of the task "concrete" in experiments/no_tuning
LEVEL = 0.9


def rows(name: str, split: str, fold: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Standardized inputs, and targets in their own units."""
    examples = uci(name, split, fold=fold)
    inputs = (examples.inputs - torch.tensor(examples.mean)) / torch.tensor(examples.std)
    return inputs, examples.targets * examples.target_std + examples.target_mean


def network(inputs: int, noise: str) -> nn.Module:
    """Two hidden layers; with noise="head" the network predicts the noise, too."""
    layers = [nn.Linear(inputs, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU()]
    if noise == "head":
        return nn.Sequential(*layers, nn.Linear(HIDDEN, 2), MeanVariance())
    return nn.Sequential(*layers, nn.Linear(HIDDEN, 1))


def coverage(found: RegressionPredictions, variance: torch.Tensor) -> float:
    """Share of the targets inside the Gaussian interval with this variance."""
    assert found.targets is not None
    low, high = metrics.gaussian_interval(found.mean.flatten(), variance.flatten(), LEVEL)
    return metrics.interval_coverage(low, high, found.targets.flatten())


def one(name: str, fold: int, noise: str) -> dict[str, Any]:
    """Fit one split, and score its test rows."""
    began = time.monotonic()
    inputs, targets = rows(name, "train", fold)
    torch.manual_seed(fold)
    model = network(inputs.shape[1], noise)
    loader = DataLoader(TensorDataset(inputs, targets), batch_size=BATCH, shuffle=True)
    fitted = varlearn.fit(model, loader, EPOCHS, seed=fold, progress=False)
    test = rows(name, "test", fold)
    found = fitted.predict(test, progress=False)
    scores = fitted.score(test)
    return {
        "set": name,
        "fold": fold,
        "noise": noise,
        "coverage": coverage(found, found.variance),
        "coverage_epistemic": coverage(found, found.epistemic.clamp_min(1e-20)),
        "coverage_aleatoric": coverage(found, found.aleatoric),
        "epistemic_share": (found.epistemic / found.variance).mean().item(),
        "temperature": fitted.posterior.temperature,
        "rmse": scores["rmse"],
        "nll": scores["nll"],
        "test": scores["examples"],
        "train": len(targets),
        "seconds": round(time.monotonic() - began, 1),
    }


def main() -> None:
    """Run what `results.jsonl` lacks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", default=SETS, choices=sorted(SHAPES))
    parser.add_argument("--noise", nargs="+", default=("residuals", "head"), choices=("residuals", "head"))
    parser.add_argument("--folds", type=int, default=20)
    args = parser.parse_args()
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    done = {(row["set"], row["fold"], row["noise"]) for row in map(json.loads, lines)}
    for fold in range(args.folds):
        for name in args.sets:
            for noise in args.noise:
                if (name, fold, noise) not in done and fold < SHAPES[name][3]:
                    with RESULTS.open("a") as file:
                        file.write(json.dumps(one(name, fold, noise)) + "\n")


if __name__ == "__main__":
    main()
