"""Small tasks on which the rule was developed. None of them counts in the benchmark; their test part is empty."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor, nn

from experiments.no_tuning.tasks import Part, Parts, Task, around
from varlearn.data import load
from varlearn.models import GPT2, mlp

EMPTY = Part(torch.empty(0), torch.empty(0))
RATES = {"adamw": around(3e-3), "sgd": around(3e-2)}


def _order(n: int) -> Tensor:
    return torch.randperm(n, generator=torch.Generator().manual_seed(1))


def _split(inputs: Tensor, targets: Tensor, train: int, validation: int) -> Parts:
    order = _order(len(inputs))
    first, second = order[:train], order[train : train + validation]
    return Parts(Part(inputs[first], targets[first]), Part(inputs[second], targets[second]), EMPTY)


@lru_cache
def _mnist(train: int, validation: int) -> Parts:
    examples = load("mnist", "train")
    chosen = _order(len(examples))[: train + validation]
    inputs = (examples.inputs[chosen].float() / 255 - examples.mean[0]) / examples.std[0]
    return _split(inputs, examples.targets[chosen], train, validation)


@lru_cache
def _regression(name: str, train: int, validation: int) -> Parts:
    examples = load(name, "train", fold=0)
    inputs = (examples.inputs - torch.tensor(examples.mean)) / torch.tensor(examples.std)
    return _split(inputs, examples.targets, train, validation)


@lru_cache
def _table(name: str, train: int, validation: int) -> Parts:
    from sklearn import datasets

    inputs, targets = getattr(datasets, f"load_{name}")(return_X_y=True)
    table = torch.tensor(inputs, dtype=torch.float32)
    return _split((table - table.mean(0)) / table.std(0), torch.tensor(targets), train, validation)


@lru_cache
def _sentences(train: int, validation: int) -> Parts:
    examples = load("sst5", "train", vocab=5_000, context=40)
    return _split(examples.inputs, examples.targets, train, validation)


@lru_cache
def _brown() -> Parts:
    text = load("brown", "train").inputs.long()
    text = torch.unique(text, return_inverse=True)[1]
    windows = (len(text) - 1) // 64
    inputs, targets = text[: windows * 64].view(-1, 64), text[1 : windows * 64 + 1].view(-1, 64)
    return Parts(Part(inputs[:-512], targets[:-512]), Part(inputs[-512:], targets[-512:]), EMPTY)


class _Bag(nn.Module):
    """Mean of embeddings, then a hidden layer."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.head = nn.Embedding(5_000, 64), mlp(64, 5, (64,))

    def forward(self, tokens: Tensor) -> Tensor:
        mask = (tokens != 0).float()
        return self.head((self.tokens(tokens) * mask[..., None]).sum(1) / mask.sum(1, keepdim=True).clamp(min=1))


def _lenet() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 8, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 10)),
    )


def _deep() -> nn.Module:
    return mlp(784, 10, (64,) * 7)


DEVELOPMENT: dict[str, Task] = {
    "dev-mnist-mlp": Task(lambda seed: _mnist(1_000, 4_000), lambda: mlp(784, 10, (100, 100)), 50, 40, RATES),
    "dev-mnist-lenet": Task(lambda seed: _mnist(1_000, 4_000), _lenet, 50, 30, RATES, samples=16),
    "dev-mnist-deep": Task(lambda seed: _mnist(1_000, 4_000), _deep, 50, 40, RATES),
    "dev-energy": Task(
        lambda seed: _regression("uci-energy", 500, 191), lambda: mlp(8, 2, (50,)), 25, 60, RATES, "regression"
    ),
    "dev-redwine": Task(
        lambda seed: _regression("uci-wine", 800, 600), lambda: mlp(11, 2, (50, 50)), 32, 40, RATES, "regression"
    ),
    "dev-cancer": Task(lambda seed: _table("breast_cancer", 250, 319), lambda: mlp(30, 2, (50,)), 25, 40, RATES),
    "dev-wine": Task(lambda seed: _table("wine", 80, 98), lambda: mlp(13, 3, (50,)), 10, 40, RATES),
    "dev-bag": Task(lambda seed: _sentences(4_000, 3_000), _Bag, 50, 10, RATES),
    "dev-brown-gpt": Task(
        lambda seed: _brown(),
        lambda: GPT2(layers=2, heads=2, width=64, vocab=100, context=64),
        *(16, 0.08, RATES, "tokens"),
    ),
}
