"""Training while leave-one-out losses are measured, for several variances and all scales of them at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import varlearn
from varlearn.data import load
from varlearn.data.batches import Batches
from varlearn.data.examples import Examples
from varlearn.models import frn_cnn, gpt2_tiny, gru, lenet, resnet20
from varlearn.posterior import DiagGaussian
from varlearn.presets import short_run
from varlearn.sensitivities.example_deviation import ExampleDeviation
from varlearn.sensitivities.loss_errors import error_of_example, error_of_tokens

SCALES = tuple(10.0 ** (power / 8) for power in range(-40, 41))  # of the variance; 1 is as it is
METHODS = ("ivon", "adamw", "sgd")


@dataclass(frozen=True)
class Task:
    """A network and its data.

    Attributes:
        data: (training, test) examples.
        model: builds the network from the global random state.
        rates: learning rates of AdamW and SGD.
        like: which optimizer usually trains such a network; decides IVON's preset.
        batch: examples (windows) per step.
        context: tokens per window of a language model.
        augment: flip and crop training images.
    """

    data: Callable[[], tuple[Examples, Examples]]
    model: Callable[[], nn.Module]
    rates: dict[str, float]
    like: str = "sgd"
    batch: int = 50
    context: int | None = None
    augment: bool = False


def _data(name: str, n: int, n_test: int, **options: Any) -> tuple[Examples, Examples]:
    return load(name, "train", **options).first(n), load(name, "test", **options).first(n_test)


def _gru() -> nn.Module:
    return gru(4, vocab=5_000, embedding=64, hidden=64)


def tasks(size: str) -> dict[str, Task]:
    """The four tasks: "small" for one core and minutes, "full" for hours."""
    full = size == "full"
    words = {"vocab": 5_000, "context": 32}
    image_rates, text_rates = {"adamw": 2e-3, "sgd": 0.05}, {"adamw": 3e-3, "sgd": 0.5}
    network = resnet20 if full else frn_cnn
    pack = 60_000 if full else 2_000
    return {
        "mnist-lenet": Task(partial(_data, "mnist", pack, 2_000), partial(lenet, 10, 1), image_rates),
        "cifar10": Task(
            partial(_data, "cifar10", 10_000 if full else 3_000, 2_000), network, image_rates, augment=True
        ),
        "ag_news-gru": Task(
            partial(_data, "ag_news-pack", 8_000 if full else 3_000, 2_000, **words), _gru, text_rates, like="adamw"
        ),
        "shakespeare-gpt": Task(
            partial(_data, "tinyshakespeare", 500_000 if full else 60_000, 16_384),
            partial(gpt2_tiny, 256, context=64),
            text_rates,
            like="adamw",
            batch=16,
            context=64,
        ),
    }


def learn(task: Task, method: str, epochs: int, seed: int, examples: int) -> dict[str, Any]:
    """Train, and measure after each epoch.

    Args:
        task: network and data.
        method: one of `METHODS`.
        epochs: passes over the data.
        seed: of the weights, the order, the noise, and the choice of examples.
        examples: how many training examples (windows) are left out in turn, with fixed ids.

    Returns:
        "epochs": a list of "epoch", "train" and "test" loss, and "loo": by variance the losses at all `SCALES`.
    """
    torch.manual_seed(seed)
    model = task.model()
    train, test = task.data()
    batches = Batches(train, task.batch, seed=seed, shuffle=True, augment=task.augment, context=task.context)
    steps, terms = epochs * len(batches), len(train)
    optimizer = _optimizer(task, method, model, terms, steps, seed)
    warm = max(1, steps // 20)
    schedules = [
        torch.optim.lr_scheduler.LinearLR(optimizer, 1 / warm, total_iters=warm),
        torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps - warm),
    ]
    schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, schedules, [warm])
    plain = Batches(train, 500 if task.context is None else 64, context=task.context)
    tested = Batches(test, 500 if task.context is None else 64, context=task.context)
    chosen = _chosen(plain, examples, seed)
    found: dict[str, Any] = {"n": terms, "steps": steps, "epochs": [], "seconds": 0.0, "loo_seconds": 0.0}
    for epoch in range(epochs):
        start = time.perf_counter()
        model.train()
        for inputs, targets in batches.epoch(epoch):
            if isinstance(optimizer, varlearn.IVON):
                with optimizer.sampled_params(train=True):
                    optimizer.zero_grad()
                    _loss(model(inputs), targets).backward()
            else:
                optimizer.zero_grad()
                _loss(model(inputs), targets).backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        model.eval()
        middle = time.perf_counter()
        measured = {
            name: _loo(model, posterior, chosen, task.context is not None)
            for name, posterior in variances(model, optimizer, terms)
        }
        found["loo_seconds"] += time.perf_counter() - middle
        found["seconds"] += middle - start
        record = {"epoch": epoch + 1, "train": _mean_loss(model, plain), "test": _mean_loss(model, tested)}
        found["epochs"].append(record | {"loo": measured})
    return found


def variances(model: nn.Module, optimizer: torch.optim.Optimizer, n: int) -> list[tuple[str, DiagGaussian]]:
    """The posteriors to compare: learned h and a fixed h0 for IVON; sqrt(v) or a constant for the others; ess = n."""
    if isinstance(optimizer, varlearn.IVON):
        group = optimizer.param_groups[0]
        learned = DiagGaussian.from_optimizer(model, optimizer)
        learned = learned.tempered(group["ess"] / n)
        fixed = {name: value.new_full(value.shape, group["hess_init"]) for name, value in learned.hess.items()}
        return [("learned h", learned), ("fixed h0", replace(learned, hess=fixed))]
    name = "sqrt(v)" if isinstance(optimizer, torch.optim.AdamW) else "constant"
    return [(name, DiagGaussian.from_optimizer(model, optimizer, ess=float(n)))]


def _optimizer(task: Task, method: str, model: nn.Module, n: int, steps: int, seed: int) -> torch.optim.Optimizer:
    if method == "ivon":
        settings = short_run(n, steps, like=task.like)  # type: ignore[arg-type]
        return varlearn.IVON(model.parameters(), **settings, seed=seed)
    if method == "adamw":
        return torch.optim.AdamW(model.parameters(), lr=task.rates["adamw"], weight_decay=0.01)
    return torch.optim.SGD(model.parameters(), lr=task.rates["sgd"], momentum=0.9, weight_decay=2e-4)


def _loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(outputs.flatten(0, -2), targets.flatten())


@torch.no_grad()
def _mean_loss(model: nn.Module, batches: Batches) -> float:
    sums = [(_loss(model(inputs), targets).item() * targets.numel(), targets.numel()) for inputs, targets in batches]
    return sum(total for total, _ in sums) / sum(count for _, count in sums)


def _chosen(batches: Batches, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets of a fixed random choice of examples."""
    inputs, targets = (torch.cat(parts) for parts in zip(*batches, strict=True))
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(seed))[:count]
    return inputs[order], targets[order]


def _loo(model: nn.Module, posterior: DiagGaussian, chosen: tuple[Tensor, Tensor], tokens: bool) -> list[float]:
    """The mean of the loss at f + scale * V e, for all scales."""
    compute = ExampleDeviation(model, posterior, error_of_tokens if tokens else error_of_example, tokens=tokens)
    inputs, targets = chosen
    size = compute.chunk(inputs)
    sums = torch.zeros(len(SCALES), dtype=torch.float64)
    for one, labels in zip(inputs.split(size), targets.split(size), strict=True):
        outputs, _, deviation = compute(one, labels)
        losses = [_loss(outputs + scale * deviation, labels).double() * labels.numel() for scale in SCALES]
        sums += torch.stack(losses)
    return (sums / targets.numel()).tolist()
