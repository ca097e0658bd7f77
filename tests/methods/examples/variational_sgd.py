"""Variational SGD: the gradient at a sample around the weights, with one standard deviation for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from varlearn.core.noise import derive_key
from varlearn.methods import Facts, Optim, VariationalMethod
from varlearn.methods.parameter_groups import parameter_groups
from varlearn.setting_checks import Rule, positive


class VariationalSGD(torch.optim.SGD):
    """SGD whose blocks show m + std * noise; the noise is a function of the seed and the number of the block."""

    def __init__(self, groups: list, lr: float, momentum: float, **fixed: float) -> None:
        super().__init__([group | fixed | {"draws": 0} for group in groups], lr=lr, momentum=momentum)

    @contextmanager
    def sampled_params(self, train: bool = False) -> Iterator[None]:
        group = self.param_groups[0]
        generator = torch.Generator().manual_seed(derive_key(int(group["seed"]), group["draws"]))
        means = [param.detach().clone() for param in group["params"]]
        with torch.no_grad():
            for param in group["params"]:
                std = (group["ess"] * (group["hess_init"] + group["weight_decay"])) ** -0.5
                param.add_(torch.randn(param.shape, generator=generator), alpha=std)
        yield
        with torch.no_grad():
            for param, mean in zip(group["params"], means, strict=True):
                param.copy_(mean)
        group["draws"] += 1


@dataclass(frozen=True)
class VariationalSGDSettings(Optim):
    """Settings of variational SGD.

    Attributes:
        std: standard deviation of every weight.
    """

    RULES: ClassVar[dict[str, Rule]] = Optim.RULES | {"std": positive("0.01 is small beside most weights")}

    name: str = "vsgd"
    lr: float = 0.1
    std: float = 0.01


class VariationalSGDMethod(VariationalMethod[VariationalSGDSettings]):
    """One row of the table."""

    name = "vsgd"
    label = "Variational SGD"
    cost = "forward and backward pass per sample; two copies of the weights"
    Settings = VariationalSGDSettings
    clips_itself = False

    def optimizer(self, model: nn.Module, facts: Facts) -> VariationalSGD:
        settings = self.settings
        hess = 1.0 / (facts.n * settings.std**2) - settings.weight_decay
        fixed = {"ess": float(facts.n), "hess_init": hess, "seed": facts.seed}
        return VariationalSGD(parameter_groups(model, settings), settings.lr, settings.beta1, **fixed)
