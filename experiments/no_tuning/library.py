"""The library's variational AdamW with its defaults: the rule that the final seeds run."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

from experiments.no_tuning.tasks import Parts, Task
from varlearn.optim import VAdamW
from varlearn.posterior import DiagGaussian

FINETUNING_RATE = 1e-4  # AdamW's usual rate; training from scratch takes `suggested_lr`


class Variational:
    """`VAdamW.for_model` and nothing else: no number of this task was chosen."""

    has_posterior = True
    samples = 1

    def __init__(self, model: nn.Module, task: Task, parts: Parts, job: dict[str, Any]) -> None:
        terms = task.terms(parts.train)
        self.optimizer = VAdamW.for_model(
            model,
            FINETUNING_RATE if task.pretrained else None,
            pretrained=task.pretrained,
            n=terms,
            batch_size=task.batch * terms // len(parts.train.inputs),
            steps=task.steps(parts.train),
            seed=job["seed"],
        )
        self.model, self.rate = model, self.optimizer.param_groups[0]["lr"]
        self._block: AbstractContextManager[None] | None = None
        self._posterior: DiagGaussian | None = None

    def perturb(self) -> None:
        self._block = self.optimizer.sampled_params(train=True)
        self._block.__enter__()

    def step(self, schedule: float) -> None:
        assert self._block is not None
        self._block.__exit__(None, None, None)
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate * schedule
        self.optimizer.step()

    @torch.no_grad()
    def show(self, scale: float, number: int) -> None:
        if self._posterior is None:
            self._posterior = DiagGaussian.from_optimizer(self.model, self.optimizer)
        show_sample(self.model, self._posterior, scale, number)


@torch.no_grad()
def show_sample(model: nn.Module, posterior: DiagGaussian, scale: float, number: int) -> None:
    """Put a sample into the weights, its distance from the mean multiplied by `scale`; 0 is the mean."""
    mean = posterior.mean
    sample = posterior.sample(seed=1_000_000, index=number) if scale else mean
    for name, param in model.named_parameters():
        if name in mean:
            param.copy_(mean[name] + scale * (sample[name] - mean[name]))
