"""Variational AdamW: AdamW's settings and step, and a Gaussian as the result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from varlearn.methods.method import Facts
from varlearn.methods.shared_settings import Optim
from varlearn.methods.variational_method import VariationalMethod
from varlearn.setting_checks import Rule, positive

if TYPE_CHECKING:
    from torch import nn

    from varlearn.optim import VAdamW


@dataclass(frozen=True)
class VAdamWSettings(Optim):
    """Settings of variational AdamW. `ess` is lambda; None anneals it from 1,000 n to n over the run.

    Attributes:
        lr: peak learning rate; AdamW's. It needs a schedule that ends near 0.
        weight_decay: decoupled decay of the mean. It is not the prior.
        beta2: average of squared gradients, which the variance is made of.
        prior_width: width of the prior relative to the weights; None for one that falls with the number of weight
            matrices, see `varlearn.optim.prior_widths`.
    """

    RULES: ClassVar[dict[str, Rule]] = Optim.RULES | {
        "prior_width": positive("leave it out for a width by depth; 1 suits shallow networks")
    }

    name: str = "vadamw"
    lr: float = 3e-3
    weight_decay: float = 1e-2
    beta2: float = 0.999
    prior_width: float | None = None


class VAdamWMethod(VariationalMethod[VAdamWSettings]):
    """Gradients at samples of the weights, AdamW's step, and a Gaussian made of its second moment.

    >>> from torch import nn
    >>> facts = Facts(n=100, batch_size=10, steps=50, task="classification")
    >>> group = VAdamWMethod(VAdamWSettings()).optimizer(nn.Linear(1, 1), facts).param_groups[0]
    >>> group["n"], group["batch_size"], group["ess"]
    (100, 10, 100000.0)
    """

    name = "vadamw"
    label = "VAdamW"
    cost = "forward and backward pass per sample; three copies of the weights"
    Settings = VAdamWSettings

    def optimizer(self, model: nn.Module, facts: Facts) -> VAdamW:
        """VAdamW with n and batch size of the run. It clips the gradient of the mean alone."""
        from varlearn.optim import VAdamW

        settings = self.settings
        return VAdamW(
            _parameter_groups(model, settings, facts),
            lr=settings.lr,
            n=facts.n,
            batch_size=facts.batch_size,
            steps=facts.steps,
            betas=(settings.beta1, settings.beta2),
            weight_decay=settings.weight_decay,
            ess=settings.ess,
            mc_samples=settings.samples,
            seed=facts.seed,
            max_grad_norm=facts.max_grad_norm,
        )


def _parameter_groups(model: nn.Module, settings: VAdamWSettings, facts: Facts) -> list[dict[str, Any]]:
    """Groups of equal prior width, with the weight decay of their parameters."""
    from varlearn.optim.prior_widths import parameter_groups

    groups: list[dict[str, Any]] = []
    for group in parameter_groups(model, facts.steps * facts.batch_size / facts.n):
        width = group["prior_width"] if settings.prior_width is None else settings.prior_width
        decaying = [named for named in group["params"] if named[1].dim() >= 2 or not settings.matrices_only]
        others = [named for named in group["params"] if named[1].dim() < 2 and settings.matrices_only]
        for params, decay in ((decaying, settings.weight_decay), (others, 0.0)):
            if params:
                groups.append({"params": params, "prior_width": width, "weight_decay": decay})
    return groups
