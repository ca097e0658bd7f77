"""Bayesian SAM (Moellenhoff and Khan, 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from varlearn.methods.method import Batch, Facts, Training
from varlearn.methods.parameter_groups import parameter_groups
from varlearn.methods.shared_settings import Optim
from varlearn.methods.variational_method import VariationalMethod
from varlearn.setting_checks import Rule, not_negative

if TYPE_CHECKING:
    from torch import Tensor, nn

    from varlearn.optim import BSAM


@dataclass(frozen=True)
class BSAMSettings(Optim):
    """Settings of Bayesian SAM; the defaults are the authors' for ResNet-18 on CIFAR-10.

    Attributes:
        lr: peak learning rate.
        weight_decay: delta; 8e-4 is a prior precision of 40 at 50,000 examples.
        beta2: average of the Hessian estimate.
        hess_init: h0.
        rho: size of the perturbation.
        damping: gamma, added to each Hessian estimate.
    """

    RULES: ClassVar[dict[str, Rule]] = Optim.RULES | {
        "rho": not_negative("0.01 is the authors'"),
        "damping": not_negative("0.1 is usual"),
    }

    name: str = "bsam"
    lr: float = 0.5
    weight_decay: float = 8e-4
    beta2: float = 0.999
    hess_init: float = 1.0
    rho: float = 0.01
    damping: float = 0.1


class BSAMMethod(VariationalMethod[BSAMSettings]):
    """A gradient at a sample, one at the perturbed mean, and a Gaussian as the result.

    >>> from torch import nn
    >>> facts = Facts(n=100, batch_size=10, steps=50, task="classification")
    >>> group = BSAMMethod(BSAMSettings()).optimizer(nn.Linear(1, 1), facts).param_groups[0]
    >>> group["ess"], group["rho"]
    (100.0, 0.01)
    """

    name = "bsam"
    label = "bSAM"
    cost = "two forward and backward passes per sample; three copies of the weights"
    Settings = BSAMSettings
    passes = 2

    def optimizer(self, model: nn.Module, facts: Facts) -> BSAM:
        """BSAM with lambda = n where `ess` is None."""
        from varlearn.optim import BSAM

        settings = self.settings
        return BSAM(
            parameter_groups(model, settings),
            rho=settings.rho,
            damping=settings.damping,
            clip_radius=settings.clip_radius,
            **self.arguments(facts),
        )

    def sample_pass(self, training: Training, batch: Batch, draw: int, more: bool) -> Tensor:
        """Two passes over the batch; the loss is that of the first."""
        optimizer: BSAM = training.optimizer  # type: ignore[assignment]
        loss = training.backward(batch, share=1.0)
        optimizer.perturb(training.grad_scale)
        training.backward(batch, share=1.0)
        return loss
