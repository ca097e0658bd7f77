"""Sharpness-aware minimization (Foret et al., 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from varlearn.methods.method import Batch, Facts, Method, Training
from varlearn.methods.parameter_groups import parameter_groups
from varlearn.methods.shared_settings import Optim
from varlearn.setting_checks import Rule, not_negative

if TYPE_CHECKING:
    from torch import Tensor, nn

    from varlearn.optim import SAM


@dataclass(frozen=True)
class SAMSettings(Optim):
    """Settings of SAM, beside those of SGD.

    Attributes:
        lr: peak learning rate; SGD's.
        rho: length of the perturbation. Each micro-batch has its own.
    """

    RULES: ClassVar[dict[str, Rule]] = Optim.RULES | {"rho": not_negative("0.05 is usual")}

    name: str = "sam"
    lr: float = 0.1
    rho: float = 0.05


class SAMMethod(Method[SAMSettings]):
    """SGD with gradients taken where the loss is about largest nearby; the final weights are the result.

    >>> from torch import nn
    >>> facts = Facts(n=100, batch_size=10, steps=50, task="classification")
    >>> SAMMethod(SAMSettings(rho=0.1)).optimizer(nn.Linear(1, 1), facts).param_groups[0]["rho"]
    0.1
    """

    name = "sam"
    label = "SAM"
    cost = "two forward and backward passes per step; two copies of the weights"
    Settings = SAMSettings
    passes = 2
    averages = False
    clips_itself = True

    def optimizer(self, model: nn.Module, facts: Facts) -> SAM:
        """SAM with SGD's step."""
        from varlearn.optim import SAM

        settings = self.settings
        return SAM(
            parameter_groups(model, settings),
            lr=settings.lr,
            rho=settings.rho,
            beta1=settings.beta1,
            max_grad_norm=facts.max_grad_norm,
        )

    def gradients(self, training: Training, batch: Batch) -> list[Tensor]:
        """Two passes over the batch; the loss is that of the first."""
        optimizer: SAM = training.optimizer  # type: ignore[assignment]
        with optimizer.two_passes():
            loss = training.backward(batch)
            optimizer.perturb()
            training.backward(batch)
        return [loss]
