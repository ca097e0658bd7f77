"""Train one network on one task, and score its mean, its average over samples, and that average after calibration."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from experiments.no_tuning.tasks import Part, Parts, Task
from varlearn.batchnorm import recalibrate_batchnorm
from varlearn.data import augment
from varlearn.metrics import accuracy, ece, nll

WARMUP = 0.05  # of the steps
SCALES = (
    0.0,
    0.25,
    0.5,
    0.71,
    1.0,
    1.41,
    2.0,
    2.83,
)  # of the posterior's std; squared, a temperature
EVALUATION_BATCH = 250
LEVELS = torch.arange(1, 20) / 20
Scores = dict[str, float]


class Method(Protocol):
    """What the loop needs of an optimizer."""

    has_posterior: bool
    samples: int  # backward passes per step, all on the same batch

    def perturb(self) -> None:
        """Put the weights into the model at which the next gradient is taken."""

    def step(self, schedule: float) -> None:
        """Use the gradients; `schedule` multiplies the learning rate."""

    def show(self, scale: float, number: int) -> None:
        """Put sample `number` into the model, its standard deviation times `scale`; the mean for 0."""


class Baseline:
    """SGD with momentum, or AdamW."""

    has_posterior = False
    samples = 1

    def __init__(self, name: str, model: nn.Module, rate: float) -> None:
        if name == "sgd":
            self.optimizer: torch.optim.Optimizer = torch.optim.SGD(
                model.parameters(), lr=rate, momentum=0.9, weight_decay=2e-4
            )
        else:
            self.optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01)
        self.rate = rate

    def perturb(self) -> None:
        pass

    def step(self, schedule: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate * schedule
        self.optimizer.step()

    def show(self, scale: float, number: int) -> None:
        pass


def schedule(step: int, steps: int) -> float:
    """A linear warm-up, then a cosine to 0."""
    return min((step + 1) / max(1.0, WARMUP * steps), 0.5 * (1 + math.cos(math.pi * step / steps)))


def loss(task: Task, outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean negative log-likelihood."""
    if task.kind == "regression":
        return -log_density(outputs, targets).mean()
    return F.cross_entropy(outputs.flatten(0, -2), targets.flatten())


def log_density(outputs: Tensor, targets: Tensor) -> Tensor:
    mean, log_std = moments(outputs)
    return -0.5 * ((targets - mean) * (-log_std).exp()) ** 2 - log_std - 0.5 * math.log(2 * math.pi)


def moments(outputs: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and log standard deviation; the latter goes through a softplus, so that no output can make it explode."""
    return outputs[..., 0], (F.softplus(outputs[..., 1]) + 1e-3).log()


def batches(task: Task, train: Part, seed: int) -> Iterator[Part]:
    """Batches without end; each pass in a new order, its incomplete last batch left out."""
    source = torch.Generator().manual_seed(seed)
    n, epoch = len(train.inputs), 0
    while True:
        order = torch.randperm(n, generator=source)
        if task.by_length:
            order = grouped(order, train, task.batch, source)
        if task.augment:
            pad = augment.padding(*train.inputs.shape[-2:])
            choices = augment.draw(n, pad, True, seed=seed, epoch=epoch)
        for start in range(0, n - task.batch + 1, task.batch):
            index = order[start : start + task.batch]
            inputs = train.inputs[index]
            if task.augment:
                inputs = augment.flip_crop(inputs.contiguous(), choices[index], pad)
            yield Part(inputs, train.targets[index])
        epoch += 1


def grouped(order: Tensor, train: Part, batch: int, source: torch.Generator) -> Tensor:
    """The same order, sorted by length within stretches of eight batches; then the batches are shuffled."""
    lengths = (train.inputs[order] != 0).sum(1)
    stretches = zip(order.split(8 * batch), lengths.split(8 * batch), strict=True)
    order = torch.cat([index[length.argsort(stable=True)] for index, length in stretches])
    whole = order[: len(order) // batch * batch].view(-1, batch)
    return whole[torch.randperm(len(whole), generator=source)].flatten()


def train(
    task: Task, parts: Parts, seed: int, method_of: Callable[[nn.Module], Method]
) -> tuple[nn.Module, Method, bool]:
    """Run all steps; the last value tells whether the loss stayed finite."""
    torch.manual_seed(seed)
    model = task.model().train()
    method = method_of(model)
    steps, source = task.steps(parts.train), batches(task, parts.train, seed)
    for step in range(steps):
        batch = next(source)
        for _ in range(method.samples):
            method.perturb()
            model.zero_grad()
            value = loss(task, model(batch.inputs), batch.targets)
            value.backward()
            if not math.isfinite(value.item()):
                return model, method, False
        method.step(schedule(step, steps))
    return model, method, True


class Average:
    """Mean of predictive distributions over weights."""

    def __init__(self) -> None:
        self.logs: Tensor | None = None  # log-probabilities (N, C), or log densities (N,)
        self.below: Tensor | None = None  # regression: distribution functions at the targets, summed
        self.means: Tensor | None = None
        self.count = 0

    def add(self, task: Task, outputs: Tensor, targets: Tensor) -> None:
        self.count += 1
        if task.kind == "regression":
            new = log_density(outputs, targets)
            mean, log_std = moments(outputs)
            below = torch.special.ndtr((targets - mean) * (-log_std).exp())
            self.below = below if self.below is None else self.below + below
            self.means = mean if self.means is None else self.means + mean
        else:
            new = outputs.flatten(0, -2).log_softmax(-1)
        self.logs = new if self.logs is None else torch.logaddexp(self.logs, new)

    def scores(self, task: Task, targets: Tensor) -> Scores:
        """NLL in nats per term, accuracy and ECE; for regressions RMSE, and as ECE the mean error of 19 quantiles."""
        assert self.logs is not None
        logs = self.logs.double() - math.log(self.count)
        if task.kind != "regression":
            logs, targets = logs.log_softmax(-1), targets.flatten()
            return {"nll": nll(logs, targets), "accuracy": accuracy(logs, targets), "ece": ece(logs, targets)}
        assert self.below is not None
        assert self.means is not None
        shares = (self.below / self.count <= LEVELS[:, None]).double().mean(1)
        return {
            "nll": -float(logs.mean()),
            "rmse": float((self.means / self.count - targets).square().mean().sqrt()),
            "ece": float((shares - LEVELS).abs().mean()),
        }


@torch.no_grad()
def outputs_of(model: nn.Module, part: Part) -> Tensor:
    model.eval()
    return torch.cat([model(inputs) for inputs in part.inputs.split(EVALUATION_BATCH)])


def score(
    task: Task, model: nn.Module, method: Method, parts: Parts, names: tuple[str, ...], scale: float, samples: int
) -> dict[str, Scores]:
    """Scores of the average over samples on the named parts; samples are the outer loop."""
    averages = {name: Average() for name in names}
    for number in range(samples if scale else 1):
        method.show(scale, number)
        recalibrate_batchnorm(model, parts.train.inputs[:1_000].split(EVALUATION_BATCH))
        for name, average in averages.items():
            part = getattr(parts, name)
            average.add(task, outputs_of(model, part), part.targets)
    return {name: average.scores(task, getattr(parts, name).targets) for name, average in averages.items()}


def run(
    task: Task,
    seed: int,
    method_of: Callable[[nn.Module, Parts], Method],
    *,
    test: bool = True,
    scales: tuple[float, ...] = SCALES,
) -> dict[str, Any]:
    """Train and score. Validation NLL chooses the posterior's scale; test scores are computed last and only stored."""
    parts = task.data(seed)
    start = time.time()
    model, method, finite = train(task, parts, seed, lambda model: method_of(model, parts))
    result: dict[str, Any] = {"train_seconds": round(time.time() - start, 1), "steps": task.steps(parts.train)}
    if not finite:
        return result | {"diverged": True}
    curve = {0.0: score(task, model, method, parts, ("validation",), 0.0, 1)["validation"]}
    if method.has_posterior:
        for scale in scales:
            if scale:
                curve[scale] = score(task, model, method, parts, ("validation",), scale, task.samples)["validation"]
    best = min(curve, key=lambda scale: curve[scale]["nll"])
    chosen = {"mean": 0.0} | ({"averaged": 1.0, "calibrated": best} if method.has_posterior else {})
    result["validation"] = {name: curve[scale] for name, scale in chosen.items()}
    if method.has_posterior:
        result |= {"scale": best, "curve": {str(scale): values["nll"] for scale, values in curve.items()}}
    if test:
        seen = {
            scale: score(task, model, method, parts, ("test",), scale, task.samples)["test"]
            for scale in {*chosen.values()}
        }
        result["test"] = {name: seen[scale] for name, scale in chosen.items()}
    return result | {"seconds": round(time.time() - start, 1)}
