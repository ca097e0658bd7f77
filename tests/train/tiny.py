"""A data set and runs small enough to train hundreds of times, and the script that a killed process runs."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from varlearn import data
from varlearn.data.examples import Examples
from varlearn.train import Data, Evaluate, Model, Optim, Run, Train, fit

REPOSITORY = Path(__file__).parents[2]


def load(name: str, split: str, root: Path | None = None, **options: Any) -> Examples:
    """Images of three classes ("blobs", "colour", "far"), a line with noise ("line"), a text of letters ("letters")."""
    generator = torch.Generator().manual_seed(0 if split == "train" else 1)
    count = 96 if split == "train" else 48
    if name == "line":
        x = torch.rand(count, 1, generator=generator) * 4 - 2
        return Examples(x, 2 * x[:, 0] + 0.1 * torch.randn(count, generator=generator), (), "table")
    if name == "letters":
        text = torch.arange(count * 8) % 5 + torch.randint(2, (count * 8,), generator=generator)
        return Examples(text.to(torch.uint8), torch.empty(0, dtype=torch.long), (), "tokens", vocab=7)
    y = torch.randint(3, (count,), generator=generator)
    light = 40 + 80 * y if name != "far" else torch.full((count,), 80)
    x = (light.view(-1, 1, 1, 1) + torch.randint(-30, 30, (count, 1, 8, 8), generator=generator)).clamp(0, 255)
    if name == "colour":
        return Examples(x.to(torch.uint8).expand(-1, 3, -1, -1), y, ("dark", "grey", "light"), "image")
    statistics = ((0.5,), (0.25,)) if name == "blobs" else ((0.9,), (0.1,))
    return Examples(x.to(torch.uint8), y, ("dark", "grey", "light"), "image", *statistics)


def options_of(name: str) -> tuple[str, ...]:
    return ()


def use_tiny_data() -> None:
    """For a process of its own; tests use the fixture `tiny_data`."""
    data.load, data.options_of = load, options_of


def tiny_run(method: str = "ivon", **train: Any) -> Run:
    optim = {
        "ivon": Optim("ivon", lr=0.5, hess_init=0.1, beta2=0.99, weight_decay=1e-3),
        "adamw": Optim("adamw", lr=0.01, beta2=0.99, weight_decay=1e-3),
        "sgd": Optim("sgd", lr=0.05, weight_decay=1e-3),
    }[method]
    return Run(
        recipe="tiny",
        model=Model("mlp", classes=3, hidden=(8,)),
        data=Data("blobs", batch_size=16, eval_batch_size=20, augment=True),
        optim=optim,
        train=replace(Train(epochs=3, warmup=0, log_every=4), **train),
        evaluate=Evaluate(samples=4),
    )


if __name__ == "__main__":
    from varlearn.train import from_json

    use_tiny_data()
    fit(from_json(Path(sys.argv[1]).read_text()), sys.argv[2], resume="--resume" in sys.argv, progress=False)
