"""Training on noisy labels, and what is recorded about each example meanwhile."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import varlearn
from experiments.mislabels.noisy_data import network
from varlearn.data.batches import Batches
from varlearn.data.examples import Examples
from varlearn.presets import short_run

BATCH, RATE = 50, {"ag_news": 1e-3, "cifar10n": 2e-3}  # AdamW's learning rates


@dataclass(frozen=True)
class Setting:
    """One training: which labels, how large, how long."""

    labels: str
    size: str
    epochs: int
    seed: int
    every: int = 1  # epochs between two passes of `sensitivity`

    @property
    def is_image(self) -> bool:
        return self.labels != "ag_news"


@dataclass
class Record:
    """What a training leaves.

    Attributes:
        model: with the final weights; of IVON the mean.
        logits: of all training examples after each epoch, (epochs, N, C).
        tracker: sensitivities after every `every` epochs, of IVON.
        last: the sensitivity after the last epoch, of IVON.
        seconds: of training alone, and of the passes of `sensitivity`.
    """

    model: nn.Module
    logits: Tensor
    tracker: varlearn.SensitivityTracker = field(default_factory=varlearn.SensitivityTracker)
    last: varlearn.Sensitivity | None = None
    seconds: dict[str, float] = field(default_factory=lambda: {"training": 0.0, "sensitivity": 0.0})


def train(setting: Setting, examples: Examples, method: str, *, record: bool = True) -> Record:
    """Train from scratch with AdamW or IVON; the learning rate warms up over 5% of the steps and decays to 0."""
    model = network(setting.labels, setting.size, setting.seed)
    batches = Batches(examples, BATCH, seed=setting.seed, shuffle=True, augment=setting.is_image)
    plain = Batches(examples, 500, ids=True)
    steps, n = setting.epochs * len(batches), len(examples)
    optimizer = _optimizer(method, model, setting, n, steps)
    warm = max(1, steps // 20)
    schedule = torch.optim.lr_scheduler.SequentialLR(
        optimizer,
        [
            torch.optim.lr_scheduler.LinearLR(optimizer, 1 / warm, total_iters=warm),
            torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps - warm),
        ],
        [warm],
    )
    found = Record(model, torch.zeros(0))
    logits: list[Tensor] = []
    for epoch in range(setting.epochs):
        start = time.perf_counter()
        model.train()
        for inputs, targets in batches.epoch(epoch):
            if isinstance(optimizer, varlearn.IVON):
                with optimizer.sampled_params(train=True):
                    optimizer.zero_grad()
                    cross_entropy(model(inputs), targets).backward()
            else:
                optimizer.zero_grad()
                cross_entropy(model(inputs), targets).backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        found.seconds["training"] += time.perf_counter() - start
        model.eval()
        last = epoch + 1 == setting.epochs
        if record:
            logits.append(logits_of(model, plain))
        if record and isinstance(optimizer, varlearn.IVON) and (last or (epoch + 1) % setting.every == 0):
            start = time.perf_counter()
            learned = varlearn.DiagGaussian.from_optimizer(model, optimizer)
            factor = next(iter(learned.ess.values())) / n  # the equation holds for ess = n
            found.last = varlearn.sensitivity(model, learned.tempered(factor), plain)
            found.tracker.update(found.last)
            found.seconds["sensitivity"] += time.perf_counter() - start
    return replace(found, logits=torch.stack(logits) if logits else torch.zeros(0))


@torch.no_grad()
def logits_of(model: nn.Module, batches: Batches) -> Tensor:
    """The logits of all examples, in their order."""
    model.eval()
    return torch.cat([model(batch[0]) for batch in batches])


def out_of_sample(setting: Setting, examples: Examples, folds: int = 5) -> tuple[Tensor, float]:
    """Probabilities of each example by a network trained without its fold, and the seconds of the trainings."""
    order = torch.randperm(len(examples), generator=torch.Generator().manual_seed(setting.seed))
    probs, seconds = torch.zeros(len(examples), len(examples.classes)), 0.0
    for held_out in order.chunk(folds):
        keep = torch.ones(len(examples), dtype=torch.bool)
        keep[held_out] = False
        found = train(setting, examples.select(keep.nonzero()[:, 0]), "adamw", record=False)
        probs[held_out] = logits_of(found.model, Batches(examples.select(held_out), 500)).softmax(1)
        seconds += found.seconds["training"]
    return probs, seconds


def test_accuracy(model: nn.Module, test: Examples) -> float:
    """Share of right predictions."""
    return float((logits_of(model, Batches(test, 500)).argmax(1) == test.targets).double().mean())


def _optimizer(method: str, model: nn.Module, setting: Setting, n: int, steps: int) -> torch.optim.Optimizer:
    if method == "ivon":
        like = "sgd" if setting.is_image else "adamw"
        return varlearn.IVON(model.parameters(), **short_run(n, steps, like=like), seed=setting.seed)
    rate = RATE["cifar10n" if setting.is_image else "ag_news"]
    return torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01)
