"""A fit after training that needs the data, in the manner of the Laplace approximation (MacKay, 1992)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import torch

from varlearn.methods import Batch, Optim, Training
from varlearn.methods.adamw import AdamWMethod
from varlearn.posterior import DiagGaussian
from varlearn.posterior.binding import model_tensors
from varlearn.setting_checks import Rule, positive


@dataclass(frozen=True)
class LaplaceSettings(Optim):
    """Settings of the Laplace approximation.

    Attributes:
        prior_precision: of every weight.
    """

    RULES: ClassVar[dict[str, Rule]] = Optim.RULES | {"prior_precision": positive("1,000 is a prior of width 0.03")}

    name: str = "laplace"
    lr: float = 1e-3
    beta2: float = 0.999
    prior_precision: float = 1_000.0


class LaplaceMethod(AdamWMethod[LaplaceSettings]):
    """One row of the table."""

    name = "laplace"
    label = "Laplace"
    cost = "as AdamW, and one pass over the data at the end"
    Settings = LaplaceSettings
    averages = True

    def finish(self, training: Training, batches: Iterable[Batch]) -> DiagGaussian:
        """AdamW's weights as the mean; h is the mean over examples of squared gradients, estimated by batches."""
        params, buffers, tied = model_tensors(training.model)
        hess = {name: torch.zeros_like(param) for name, param in params.items()}
        training.model.eval()
        for batch in batches:
            grads = torch.autograd.grad(training.loss(batch), list(params.values()))
            size = len(batch[1])
            for total, grad in zip(hess.values(), grads, strict=True):
                total.add_(grad.square(), alpha=size * size / training.facts.n)
        mean = {name: param.detach().clone() for name, param in params.items()}
        n = training.facts.n
        return DiagGaussian(mean, hess, float(n), self.settings.prior_precision / n, fixed=buffers, tied=tied)
