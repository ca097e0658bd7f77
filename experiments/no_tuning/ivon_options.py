"""IVON with `presets.short_run` and one option at a time; for validation data only."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from experiments.no_tuning.library import show_sample
from experiments.no_tuning.tasks import Parts, Task
from varlearn import presets
from varlearn.core import update
from varlearn.optim import IVON
from varlearn.optim.engine.plan import Member, Noises
from varlearn.posterior import DiagGaussian

# What a job may set beside "task", "method", "seed" and "rate", which multiplies the preset's learning rate.
OPTIONS: dict[str, Any] = {
    "like": "sgd",
    "samples": 1,
    "antithetic": False,
    "every": 1,  # a step with `samples` samples is every so many; the others have one sample, which h does not see
    "memory_of_h": 1.0,  # h is averaged over so many runs: 1 - beta2 = 1 / (memory_of_h * steps)
    "warm": 1.0,  # multiplies the preset's ess
    "cold": 1.0,  # ess starts at so many times its end and falls geometrically over the run
    "cap": 0.0,  # > 0: |hhat| is at most cap * (h + delta)
}


class PairedIVON(IVON):
    """Every second sample of a step has the negated noise of the one before it."""

    def _noises(self, members: Sequence[Member], train: bool) -> Noises:
        if train and len(self._average.samples) % 2 == 1:
            first = self._average.samples[-1].noises
            return {group: noise._replace(sign=-noise.sign) for group, noise in first.items()}
        return super()._noises(members, train)


class CappedIVON(IVON):
    """|hhat| <= cap (h + delta)."""

    def __init__(self, *args: Any, cap: float, **settings: Any) -> None:
        self.rule = update.RULE._replace(estimate=partial(_capped, cap))
        super().__init__(*args, **settings)


def _capped(cap: float, approximation: str, grad: Tensor, hess: Tensor, *rest: Any) -> Tensor:
    estimate = update.hess_estimate(approximation, grad, hess, *rest)
    bound = cap * update.precision(hess, rest[-1])
    return estimate.clamp(-bound, bound)


class Ivon:
    """`presets.short_run`, and the options of a job."""

    has_posterior = True

    def __init__(self, model: nn.Module, task: Task, parts: Parts, job: dict[str, Any]) -> None:
        self.options = o = OPTIONS | job
        self.steps = task.steps(parts.train)
        settings = presets.short_run(task.terms(parts.train), self.steps, o["like"])
        settings |= {"betas": (0.9, 1.0 - min(0.1, 1.0 / (o["memory_of_h"] * self.steps))), "seed": job["seed"]}
        settings["lr"] *= job.get("rate", 1.0)
        settings["ess"] *= o["warm"]
        make = partial(CappedIVON, cap=o["cap"], fused=False) if o["cap"] else PairedIVON if o["antithetic"] else IVON
        self.ess, self.rate = settings["ess"], settings["lr"]
        settings["ess"] *= o["cold"]
        self.optimizer = make(model.parameters(), **settings)
        self.model, self.done = model, 0
        self._block: AbstractContextManager[None] | None = None
        self._posterior: DiagGaussian | None = None

    @property
    def samples(self) -> int:
        return self.options["samples"] if self.done % self.options["every"] == 0 else 1

    def perturb(self) -> None:
        self._close()
        self._block = self.optimizer.sampled_params(train=True)
        self._block.__enter__()

    def _close(self) -> None:
        if self._block is not None:
            if self.done % self.options["every"] != 0:
                states = self.optimizer.state
                self.optimizer.hand_in_hess({p: states[p]["hess"].clone() for p in self.model.parameters()})
            self._block.__exit__(None, None, None)
            self._block = None

    def step(self, schedule: float) -> None:
        self._close()
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate * schedule
        self.optimizer.step()
        self.done += 1
        for group in self.optimizer.param_groups:
            group["ess"] = self.ess * self.options["cold"] ** (1.0 - self.done / self.steps)

    @torch.no_grad()
    def show(self, scale: float, number: int) -> None:
        self._close()
        if self._posterior is None:
            self._posterior = DiagGaussian.from_optimizer(self.model, self.optimizer)
        show_sample(self.model, self._posterior, scale, number)
