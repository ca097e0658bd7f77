"""What VOGN and the IVON of 2021 have in common: a damping, and the prior inside the momentum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from varlearn.advice import RunFacts
from varlearn.core.vogn import Hyper
from varlearn.optim import hyper, objective
from varlearn.optim.diagnostics import GroupDiagnostics, diagnose_group, with_state
from varlearn.optim.variational import VariationalOptimizer

PriorMean = float | Literal["init"] | Sequence[Tensor] | Mapping[str, Tensor] | None


class DampedVariational(VariationalOptimizer):
    """A variational optimizer with IVON's state, whose groups have "damping" and "momentum"."""

    _step_supports_amp_scaling = True

    def __init__(self, params: Any, defaults: dict[str, Any], seed: int | None, prior_mean: PriorMean) -> None:
        given = objective.is_given(prior_mean)
        defaults = defaults | {"prior_mean": None if given else prior_mean}
        hyper.normalize(defaults)
        super().__init__(params, defaults | {"seed": torch.initial_seed() if seed is None else seed})
        if given:
            objective.assign_prior_mean(self, self.param_groups, prior_mean)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with their own hyperparameters; they join at the next sample."""
        objective.add_group(self, super().add_param_group, param_group)

    def _damping_of_precision(self, group: Mapping[str, Any]) -> float:
        """What is added to h + delta wherever it divides."""
        return 0.0

    def _hyper(self, group: dict[str, Any], step: int) -> Hyper:
        beta1, beta2 = (float(beta) for beta in group["betas"])
        weight_decay, averages = float(group["weight_decay"]), group["momentum"] == "average"
        scale = float(group["hess_init"]) + weight_decay + self._damping_of_precision(group)
        return Hyper(
            lr=float(group["lr"]) * (scale if group["rescale_lr"] else 1.0),
            weight_decay=weight_decay,
            damping=float(group["damping"]),
            beta1=beta1,
            grad_weight=1.0 - beta1 if averages else 1.0,
            beta2=beta2,
            clip_radius=float(group["clip_radius"]),
            debias=1.0 - beta1**step if averages else 1.0,
        )

    def diagnostics(self) -> list[GroupDiagnostics]:
        """Statistics of h, sigma and the step, one entry per group."""
        self._settle()
        groups = [(group, params) for group in self.param_groups if (params := with_state(self, self._members, group))]
        return [diagnose_group(self, self._members, group, params, _facts(group)) for group, params in groups]


def _facts(group: Mapping[str, Any]) -> RunFacts:
    first, delta, beta2 = float(group["hess_init"]), float(group["weight_decay"]), float(group["betas"][1])
    return RunFacts(hess_init=first, weight_decay=delta, beta2=beta2)
