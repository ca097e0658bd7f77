"""A method that acts once an epoch, in the manner of SWAG (Maddox et al., 2019): SGD, and moments of its iterates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from varlearn.methods import Batch, Optim, Training
from varlearn.methods.sgd import SGDMethod
from varlearn.posterior import LowRankGaussian
from varlearn.posterior.binding import model_tensors
from varlearn.setting_checks import Rule, at_least


@dataclass(frozen=True)
class SWAGSettings(Optim):
    """Settings of SWAG.

    Attributes:
        rank: deviations from the mean that are kept, the latest ones.
        first_epoch: the first epoch whose weights are collected, from 1.
    """

    RULES: ClassVar[dict[str, Rule]] = Optim.RULES | {
        "rank": at_least(2, "20 is the paper's"),
        "first_epoch": at_least(1, "1 collects from the beginning"),
    }

    name: str = "swag"
    lr: float = 0.1
    rank: int = 5
    first_epoch: int = 1


class SWAGMethod(SGDMethod[SWAGSettings]):
    """One row of the table."""

    name = "swag"
    label = "SWAG"
    cost = "forward and backward pass per step; rank + 3 copies of the weights"
    Settings = SWAGSettings
    averages = True

    def __init__(self, settings: SWAGSettings) -> None:
        super().__init__(settings)
        self.epochs, self.count = 0, 0
        self.mean: dict[str, Tensor] = {}
        self.square: dict[str, Tensor] = {}
        self.deviations: dict[str, Tensor] = {}

    def after_epoch(self, training: Training) -> None:
        self.epochs += 1
        if self.epochs < self.settings.first_epoch:
            return
        for name, param in model_tensors(training.model).params.items():
            value, old = param.detach().to("cpu", copy=True), self.count
            self.mean[name] = (self.mean.get(name, value) * old + value) / (old + 1)
            self.square[name] = (self.square.get(name, value**2) * old + value**2) / (old + 1)
            deviation = (value - self.mean[name]).unsqueeze(0)
            kept = self.deviations.get(name, deviation[:0])
            self.deviations[name] = torch.cat([kept, deviation])[-self.settings.rank :]
        self.count += 1

    def finish(self, training: Training, batches: Iterable[Batch]) -> LowRankGaussian:
        _, buffers, tied = model_tensors(training.model)
        var = {name: (self.square[name] - mean**2).clamp_min(0.0) for name, mean in self.mean.items()}
        return LowRankGaussian(self.mean, var, self.deviations, buffers, tied)

    def diagnostics(self, training: Training) -> dict[str, Any]:
        return {"collected": self.count}

    def state_dict(self) -> dict[str, Any]:
        names = ("epochs", "count", "mean", "square", "deviations")
        return {name: getattr(self, name) for name in names}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        vars(self).update(state)
