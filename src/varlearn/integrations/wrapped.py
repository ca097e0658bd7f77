"""The optimizer and the posterior behind a framework's wrappers."""

from __future__ import annotations

import logging
import os
import warnings
from dataclasses import asdict, replace
from typing import Any

from torch import nn

from varlearn.advice import Finding, RunFacts, findings
from varlearn.batchnorm import uncalibrated_layers
from varlearn.integrations.peft import adapter_posterior, is_peft_model, save_adapter_posterior
from varlearn.optim.variational import VariationalOptimizer
from varlearn.posterior import DiagGaussian, save
from varlearn.posterior.binding import unwrap
from varlearn.types import Posterior

POSTERIOR_FILE = "posterior.safetensors"

_log = logging.getLogger("varlearn")


def variational(optimizer: Any) -> VariationalOptimizer | None:
    """The IVON or VAdamW inside Accelerate's or Lightning's wrapper; None if another optimizer, or nothing, is there.

    >>> import torch
    >>> from varlearn import IVON
    >>> weight = nn.Parameter(torch.zeros(1))
    >>> variational(IVON([weight], lr=0.1, ess=1.0)) is None, variational(torch.optim.SGD([weight], lr=0.1)) is None
    (False, True)
    """
    while (inner := getattr(optimizer, "optimizer", None)) is not None:
        optimizer = inner
    return optimizer if isinstance(optimizer, VariationalOptimizer) else None


def posterior_of(model: nn.Module, optimizer: Any) -> DiagGaussian:
    """The posterior of a model and optimizer as a framework hands them out: unwrapped, of the adapter for PEFT models.

    Args:
        model: plain, or inside DDP, `torch.compile` or a PEFT model.
        optimizer: IVON or VAdamW, or a wrapper of it, with no sample in the weights.

    >>> import torch
    >>> from varlearn import IVON
    >>> net = nn.Linear(1, 1, bias=False)
    >>> opt = IVON(net.parameters(), lr=0.1, ess=3.0, hess_init=1.0, weight_decay=2.0)
    >>> round(posterior_of(net, opt).std["weight"].item(), 4)  # 1 / sqrt(3 * (1 + 2))
    0.3333
    """
    inner = variational(optimizer)
    if inner is None:
        raise TypeError(
            f"a {type(optimizer).__name__} learns no posterior; train with varlearn.IVON or varlearn.VAdamW"
        )
    model = unwrap(model)
    return adapter_posterior(model, inner) if is_peft_model(model) else DiagGaussian.from_optimizer(model, inner)


def save_posterior(posterior: Posterior, model: nn.Module, folder: str | os.PathLike[str]) -> None:
    """Write `posterior.safetensors` into a folder, made if needed; under the adapter's keys for PEFT models.

    >>> import tempfile, torch
    >>> from varlearn.posterior import Point
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_posterior(Point({"weight": torch.ones(1, 1)}), nn.Linear(1, 1), folder)
    ...     os.listdir(folder)
    ['posterior.safetensors']
    """
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, POSTERIOR_FILE)
    model = unwrap(model)
    if is_peft_model(model):
        save_adapter_posterior(posterior, model, path)
    else:
        save(posterior, path)


def diagnostics(optimizer: Any) -> dict[str, float]:
    """The numbers of `diagnostics()` of IVON or VAdamW under flat names that begin with "ivon" or "vadamw", for a log.

    >>> import torch
    >>> from varlearn import IVON
    >>> weight = nn.Parameter(torch.zeros(1))
    >>> opt = IVON([weight], lr=0.1, ess=4.0, hess_init=0.25, weight_decay=0.0)
    >>> with opt.sampled_params():
    ...     pass
    >>> diagnostics(opt)["ivon/0/std_mean"]  # 1 / sqrt(4 * 0.25)
    1.0
    """
    groups = [asdict(group) for group in optimizer.diagnostics()]
    return {
        f"{optimizer.rule.name}/{number}/{name}": float(value)
        for number, group in enumerate(groups)
        for name, value in group.items()
        if name not in ("advice", "findings")
    }


def log_advice(
    optimizer: VariationalOptimizer, model: nn.Module, known: RunFacts, *, first: bool = True
) -> tuple[Finding, ...]:
    """Log what is wrong with a finished training, as warnings of the logger "varlearn"; returns the findings.

    All ranks call it, because shards are diagnosed together.

    Args:
        optimizer: IVON or VAdamW, whose `diagnostics()` are judged.
        model: whose BatchNorm layers are looked at.
        known: what the framework knows, e.g. the losses.
        first: whether this rank is the one that logs.

    >>> import torch
    >>> from varlearn import VAdamW
    >>> net = nn.Linear(1, 1)
    >>> opt = VAdamW(net.parameters(), lr=0.1, n=1_000, batch_size=10, ess=1.0)
    >>> with opt.sampled_params():
    ...     pass
    >>> [finding.code for finding in log_advice(opt, net, RunFacts())]
    ['ess_far_from_n']
    """
    groups = optimizer.diagnostics()  # type: ignore[attr-defined]
    step = max([group.step for group in groups], default=0)
    layers = uncalibrated_layers(model, step)
    facts = replace(known, batchnorm_layers=layers, batchnorm_recalibrated=False if layers else None)
    every = [*(finding for group in groups for finding in group.findings), *findings(facts)]
    found = tuple({finding.code: finding for finding in every}.values())
    for finding in found if first else ():
        _log.warning("%s", finding)
    return found


def trainer_facts(state: Any) -> RunFacts:
    """What the log of Hugging Face's Trainer says about a training.

    Args:
        state: a `TrainerState`.
    """
    losses = [float(record["loss"]) for record in state.log_history if "loss" in record]
    rates = [float(record["learning_rate"]) for record in state.log_history if "learning_rate" in record]
    return RunFacts(
        step=state.global_step,
        steps=state.max_steps,
        lr=rates[-1] if rates else None,
        lr_peak=max(rates, default=None),
        loss_first=losses[0] if losses else None,
        loss_last=losses[-1] if losses else None,
    )


def warn_of_clipping(optimizer: VariationalOptimizer, setting: str, off: str, scaled: bool = False) -> None:
    """Say that the framework clips `p.grad`, and what to do instead, where the optimizer cannot undo it.

    Args:
        optimizer: variational.
        setting: what the user set, e.g. "max_grad_norm=1.0".
        off: how to switch it off.
        scaled: whether a gradient scaler is in use.
    """
    if optimizer.notices_clipping and not scaled:
        return
    name = type(optimizer).__name__
    warnings.warn(
        f"{setting} scales the gradient from which {name} estimates the curvature, so the curvature is too small "
        f"whenever it clips; use {off} and {name}(..., max_grad_norm=1.0), which clips the gradient of the mean alone",
        UserWarning,
        stacklevel=3,
    )
