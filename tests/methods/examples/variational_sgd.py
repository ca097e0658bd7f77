"""Variational SGD: plain gradient steps at samples of the weights; the curvature is a running average."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from varlearn.core import update
from varlearn.core.rule import Rule as UpdateRule
from varlearn.methods import Facts, Optim, VariationalMethod
from varlearn.methods.parameter_groups import parameter_groups
from varlearn.optim.variational import VariationalOptimizer
from varlearn.setting_checks import Rule, positive


def step(values: tuple[Tensor, ...], grad: Tensor, hhat: Tensor, hyper: dict, prior_mean: Tensor | float) -> tuple:
    """m - lr (ghat + delta (m - m0)), and h as an average of hhat."""
    mean, hess = values
    mean = mean - hyper["lr"] * (grad + hyper["weight_decay"] * (mean - prior_mean))
    return mean, (hess + hyper["hess_rate"] * (hhat - hess)).clamp_min(0.0)


class VariationalSGD(VariationalOptimizer):
    """An optimizer with few hyperparameters; samples, checkpoints and averages over processes are inherited."""

    rule = UpdateRule("vsgd", ("hess",), {"hess": "hess_init"}, "hess", update.std, update.hess_estimate, step)

    def _hyper(self, group: dict[str, Any], step: int) -> dict[str, float]:
        return {name: group[name] for name in ("lr", "weight_decay", "hess_rate")}


@dataclass(frozen=True)
class VariationalSGDSettings(Optim):
    """Settings of variational SGD.

    Attributes:
        std: standard deviation of every weight at first.
    """

    RULES: ClassVar[dict[str, Rule]] = Optim.RULES | {"std": positive("0.01 is small beside most weights")}

    name: str = "vsgd"
    lr: float = 0.5
    std: float = 0.01


class VariationalSGDMethod(VariationalMethod[VariationalSGDSettings]):
    """One row of the table."""

    name = "vsgd"
    label = "Variational SGD"
    cost = "forward and backward pass per sample; two copies of the weights"
    Settings = VariationalSGDSettings

    def optimizer(self, model: nn.Module, facts: Facts) -> VariationalSGD:
        own, ess = self.settings, float(facts.n)
        defaults = {"lr": own.lr, "ess": ess, "weight_decay": own.weight_decay, "hess_rate": 1.0 / facts.steps}
        defaults |= {"hess_approx": "reparam", "hess_init": 1.0 / (ess * own.std**2)}
        defaults |= {"max_grad_norm": facts.max_grad_norm, "seed": facts.seed}
        return VariationalSGD(parameter_groups(model, own), defaults)
