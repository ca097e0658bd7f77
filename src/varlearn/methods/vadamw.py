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
        lr: peak learning rate; AdamW's. It needs a schedule that ends near 0. None for 0.15 times the size of the
            initial weights, see `varlearn.optim.prior_widths`.
        weight_decay: decoupled decay of the mean. It is not the prior.
        beta2: average of squared gradients, which the variance is made of.
        prior_width: width of the prior relative to the weights; None for one that falls with the number of weight
            matrices, see `varlearn.optim.prior_widths`.
        pretrained: whether the weights come from another run; then embeddings have the width of the other weights.
            Give `lr` too.
    """

    RULES: ClassVar[dict[str, Rule]] = Optim.RULES | {
        "prior_width": positive("leave it out for a width by depth; 1 suits shallow networks")
    }

    name: str = "vadamw"
    lr: float | None = None
    weight_decay: float = 1e-2
    beta2: float = 0.999
    prior_width: float | None = None
    pretrained: bool = False


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

    @classmethod
    def untuned(cls, model: nn.Module, n: int, steps: int) -> dict[str, Any]:
        """A learning rate in proportion to the weights; the rule is frozen in `experiments/no_tuning`."""
        from varlearn.optim.prior_widths import suggested_lr

        return {"lr": suggested_lr(model)}

    def optimizer(self, model: nn.Module, facts: Facts) -> VAdamW:
        """VAdamW with n, batch size and length of the run. It clips the gradient of the mean alone."""
        from varlearn.optim import VAdamW

        settings = self.settings
        return VAdamW.for_model(
            model,
            settings.lr,
            matrices_only=settings.matrices_only,
            prior_width=settings.prior_width,
            pretrained=settings.pretrained,
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
