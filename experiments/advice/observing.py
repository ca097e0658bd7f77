"""Train a small network, healthy or made sick on purpose, and gather the facts that advice is given on."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from sklearn import datasets
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

import varlearn
from varlearn.advice import RunFacts
from varlearn.metrics import input_shift, nll_per_example
from varlearn.prediction import Predictions

LOADERS = {
    "breast_cancer": datasets.load_breast_cancer,
    "diabetes": datasets.load_diabetes,
    "digits": datasets.load_digits,
    "friedman": lambda **options: datasets.make_friedman1(500, noise=1.0, random_state=0),
    "wine": datasets.load_wine,
}


@dataclass(frozen=True)
class Setup:
    """A training run. The defaults are healthy.

    Attributes:
        data: one of `LOADERS`.
        method: the optimizer.
        changes: settings that differ from the preset's; "ess_per_n" is ess divided by the number of examples.
        schedule: of the learning rate.
        reduction: of the loss.
        batchnorm: put BatchNorm into the network.
        recalibrate: its statistics after training.
        broken_from: inputs are NaN from this step on.
        temperature: of the posterior that is predicted with.
        samples: of the averaged prediction.
        noise: how a regression knows the noise of its targets.
        raw_test: do not standardize the test inputs.
        steps: of the run.
        seed: of everything.
    """

    data: str = "digits"
    method: Literal["ivon", "vadamw"] = "ivon"
    changes: tuple[tuple[str, Any], ...] = ()
    schedule: Literal["cosine", "constant"] = "cosine"
    reduction: Literal["mean", "sum"] = "mean"
    batchnorm: bool = False
    recalibrate: bool = True
    broken_from: int | None = None
    temperature: float = 1.0
    samples: int = 32
    noise: Literal["estimated", "none"] = "estimated"
    raw_test: bool = False
    steps: int = 600
    seed: int = 0


BATCH = 32
REGRESSIONS = ("diabetes", "friedman")


@dataclass(frozen=True, eq=False)
class Split:
    """Inputs and targets."""

    inputs: Tensor
    targets: Tensor


def splits(setup: Setup) -> tuple[Split, Split, Split]:
    """Training, validation and test examples: 60%, 20% and 20%, standardized by the first."""
    inputs, targets = (torch.tensor(part) for part in LOADERS[setup.data](return_X_y=True))
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(0))
    inputs, targets = inputs[order].float(), targets[order]
    cuts = len(inputs) * 6 // 10, len(inputs) * 8 // 10
    mean, std = inputs[: cuts[0]].mean(0), inputs[: cuts[0]].std(0).clamp_min(1e-3)
    scaled = (inputs - mean) / std
    if setup.data in REGRESSIONS:
        targets = ((targets - targets[: cuts[0]].mean()) / targets[: cuts[0]].std()).float()
    test = inputs if setup.raw_test else scaled
    first, second = cuts
    return (
        Split(scaled[:first], targets[:first]),
        Split(scaled[first:second], targets[first:second]),
        Split(test[second:], targets[second:]),
    )


def observe(setup: Setup) -> RunFacts:
    """Train, predict, and return what is known about the run."""
    torch.manual_seed(setup.seed)
    train, validation, test = splits(setup)
    regression = setup.data in REGRESSIONS
    outputs = 1 if regression else int(train.targets.max()) + 1
    normed: list[nn.Module] = [nn.BatchNorm1d(64)] if setup.batchnorm else []
    model = nn.Sequential(nn.Linear(train.inputs.shape[1], 64), *normed, nn.ReLU(), nn.Linear(64, outputs))
    optimizer = _optimizer(setup, model, len(train.inputs))
    facts = _train(setup, model, optimizer, train, regression)
    largest = max(optimizer.diagnostics(), key=lambda group: group.params)
    group = optimizer.param_groups[0]
    for name in ("ess", "params", "noise_ratio", "hess_mean", "hess_moved"):
        facts[name] = getattr(largest, name, None)
    if setup.method == "ivon":
        facts |= {"hess_init": group["hess_init"], "weight_decay": group["weight_decay"], "beta2": group["betas"][1]}
    facts |= {
        "n": len(train.inputs),
        "batch_size": BATCH,
        "classes": None if regression else outputs,
        "skipped_steps": optimizer.skipped_steps,
        "task": "regression" if regression else "classification",
        "input_shift": input_shift(train.inputs, test.inputs),
        "batchnorm_layers": len(normed),
        "batchnorm_recalibrated": setup.recalibrate if setup.batchnorm else None,
    }
    if setup.recalibrate:
        varlearn.recalibrate_batchnorm(model, train.inputs.split(BATCH))
    posterior = varlearn.DiagGaussian.from_optimizer(model, optimizer).tempered(setup.temperature)
    add = _regression_facts if regression else _class_facts
    return RunFacts(**facts, **add(setup, model, posterior, train, validation))


def _optimizer(setup: Setup, model: nn.Module, n: int) -> Any:
    changes = dict(setup.changes)
    if "ess_per_n" in changes:
        changes["ess"] = changes.pop("ess_per_n") * n
    if setup.method == "vadamw":
        settings = {"n": n, "batch_size": BATCH, "steps": setup.steps} | changes
        return varlearn.VAdamW.for_model(model, **settings)
    return varlearn.IVON(model.parameters(), **varlearn.presets.short_run(n, setup.steps) | changes)


def _train(setup: Setup, model: nn.Module, optimizer: Any, train: Split, regression: bool) -> dict[str, Any]:
    peak = optimizer.param_groups[0]["lr"]
    losses, rate, constant = [], peak, 0
    generator = torch.Generator().manual_seed(setup.seed)
    for step in range(setup.steps):
        before = rate
        if setup.schedule == "cosine":
            rate = peak * 0.5 * (1.0 + math.cos(math.pi * step / setup.steps))
        constant = constant + 1 if rate == before else 1
        for group in optimizer.param_groups:
            group["lr"] = rate
        chosen = torch.randint(len(train.inputs), (BATCH,), generator=generator)
        inputs, targets = train.inputs[chosen], train.targets[chosen]
        if setup.broken_from is not None and step >= setup.broken_from:
            inputs = inputs * math.nan
        with optimizer.sampled_params(train=True):
            optimizer.zero_grad()
            outputs = model(inputs)
            if regression:
                loss = mse_loss(outputs.squeeze(1), targets, reduction=setup.reduction) / 2.0
            else:
                loss = cross_entropy(outputs, targets, reduction=setup.reduction)
            loss.backward()
        optimizer.step()
        losses.append(loss.item())
    last = losses[-20:]
    return {
        "step": setup.steps,
        "steps": setup.steps,
        "lr": rate,
        "lr_peak": peak,
        "lr_constant_for": constant,
        "loss_first": losses[0],
        "loss_last": sum(last) / len(last),
    }


def _class_facts(setup: Setup, model: nn.Module, posterior: Any, train: Split, held_out: Split) -> dict[str, Any]:
    loader = [(held_out.inputs, held_out.targets)]
    at_mean = varlearn.predict(model, posterior.at_mean(), loader, progress=False)
    averaged: Predictions = varlearn.predict(
        model, posterior, loader, setup.samples, setup.seed, keep_samples=True, progress=False
    )
    targets = held_out.targets
    mean, mixed = (nll_per_example(each.log_probs, targets) for each in (at_mean, averaged))
    assert averaged.sample_log_probs is not None
    ones = torch.stack([nll_per_example(each, targets) for each in averaged.sample_log_probs])
    return {
        "samples": setup.samples,
        "nll_mean": mean.mean().item(),
        "nll_averaged": mixed.mean().item(),
        "nll_gap_error": ((mixed - mean).std() / math.sqrt(len(targets))).item(),
        "nll_one_sample": ones.mean().item(),
        "disagreement": averaged.mutual_information.double().mean().item(),
    }


def _regression_facts(setup: Setup, model: nn.Module, posterior: Any, train: Split, held_out: Split) -> dict[str, Any]:
    loader = [(held_out.inputs, held_out.targets)]
    residuals = varlearn.predict_regression(model, posterior, loader, setup.samples, noise_variance=0.0, progress=False)
    error = (residuals.mean.squeeze(1) - held_out.targets).square().mean().item()
    noise = error if setup.noise == "estimated" else 0.0
    found = varlearn.predict_regression(
        model, posterior, loader, setup.samples, setup.seed, noise_variance=noise, progress=False
    )
    facts = {"samples": setup.samples, "noise_variance": found.aleatoric.mean().item(), "squared_error": error}
    if noise > 0.0:
        facts["disagreement"] = (found.variance / found.aleatoric).log().mean().item() / 2.0
    return facts


def named(**changes: Any) -> tuple[tuple[str, Any], ...]:
    """Settings in the form that `Setup` keeps."""
    return tuple(changes.items())


def as_json(facts: RunFacts) -> dict[str, Any]:
    """The facts that are known, with NaN and infinity as words."""
    known = {name: value for name, value in vars(facts).items() if value is not None}
    return {
        name: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in known.items()
    }


def on(data: str, setup: Setup) -> Setup:
    """The same setup on other data."""
    return replace(setup, data=data)
