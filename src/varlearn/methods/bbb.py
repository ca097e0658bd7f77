"""Bayes by backprop (Blundell et al., 2015): the evidence lower bound, and the variant of the paper's comparison."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from varlearn.methods.method import Batch, Facts, Training
from varlearn.methods.parameter_groups import parameter_groups
from varlearn.methods.shared_settings import Optim
from varlearn.methods.variational_method import VariationalMethod
from varlearn.setting_checks import Rule, positive

if TYPE_CHECKING:
    from torch import Tensor, nn

    from varlearn.optim import BBB

_EXAMPLES = 114  # stream of the noise of examples


@dataclass(frozen=True)
class BBBSettings(Optim):
    """Settings of Bayes by backprop: `weight_decay` is delta of the prior; sigma starts as IVON's, from `hess_init`.

    Attributes:
        lr: peak learning rate of Adam.
        beta2: average of squared gradients.
        noise: "weights" for one sample per batch; "local" (linear layers) or "flipout" (convolutions too) for noise of
            each example, whose gradients vary less. Compiled networks run uncompiled with these two.
    """

    name: str = "bbb"
    lr: float = 2e-3
    beta2: float = 0.999
    noise: Literal["weights", "local", "flipout"] = "weights"


@dataclass(frozen=True)
class BBBPaperSettings(BBBSettings):
    """Settings of the paper's variant.

    Attributes:
        weight_decay: decoupled decay of means and rho; AdamW's default.
        prior_std: width of the prior. The published runs passed a precision of 10 as a width.
    """

    RULES: ClassVar[dict[str, Rule]] = Optim.RULES | {"prior_std": positive("10 is the paper's")}

    name: str = "bbb-paper"
    weight_decay: float = 1e-2
    prior_std: float = 10.0


B = TypeVar("B", bound=BBBSettings)


class _BBBBase(VariationalMethod[B]):
    """What both variants share: the cost, the noise, and how settings become arguments."""

    cost = "forward and backward pass per sample; six copies of the weights"

    def gradients(self, training: Training, batch: Batch) -> list[Tensor]:
        """One backward pass at each sample of the weights, or with noise for each example."""
        kind = self.settings.noise
        if kind == "weights":
            return super().gradients(training, batch)
        from varlearn.approximations import layer_noise
        from varlearn.core.noise import derive_key

        losses = []
        for sample in range(self.settings.samples):
            key = derive_key(training.facts.seed, draw=self._passes.next(training.step), stream=_EXAMPLES)
            with layer_noise(training.model, training.optimizer, kind, key, training.grad_scale):  # type: ignore[arg-type]
                losses.append(training.backward(batch, share=1.0, more=sample + 1 < self.settings.samples))
        return losses

    def _made(self, groups: list[dict[str, Any]], facts: Facts) -> BBB:
        from varlearn.optim import BBB

        return BBB(groups, **self.arguments(facts))


class BBBMethod(_BBBBase[BBBSettings]):
    """The evidence lower bound with the KL summed over all weights, for any network.

    >>> from torch import nn
    >>> facts = Facts(n=100, batch_size=10, steps=50, task="classification")
    >>> group = BBBMethod(BBBSettings()).optimizer(nn.Linear(1, 1), facts).param_groups[0]
    >>> group["ess"], group["kl_weight"], group["decay"]
    (100.0, 1.0, 0.0)
    """

    name = "bbb"
    label = "BBB"
    Settings = BBBSettings

    def optimizer(self, model: nn.Module, facts: Facts) -> BBB:
        """BBB with lambda = n where `ess` is None."""
        return self._made(parameter_groups(model, self.settings), facts)


class BBBPaperMethod(_BBBBase[BBBPaperSettings]):
    """What the published comparison ran: the KL averaged in each tensor and so far too weak, and AdamW's decay.

    Convolutions and linear layers alone are random. Their means start as N(0, 0.1^2) and not as the network does, sigma
    near 1.5 / sqrt(lambda), with rho spread by 0.1.
    """

    name = "bbb-paper"
    label = "BBB, as published"
    Settings = BBBPaperSettings

    def optimizer(self, model: nn.Module, facts: Facts) -> BBB:
        """BBB with one group for each tensor, whose KL is divided by its size. Draws new means for random tensors."""
        import torch
        from torch import nn

        settings = self.settings
        ess = self.arguments(facts)["ess"]
        layers = [m for m in model.modules() if isinstance(m, (nn.Linear, nn.modules.conv._ConvNd))]
        random = {id(param) for layer in layers for param in layer.parameters(recurse=False)}
        groups: list[dict[str, Any]] = []
        for group in parameter_groups(model, settings):
            for param in group["params"]:
                first = 1.5 / math.sqrt(ess) if id(param) in random else 0.0
                own = {"std_init": first, "prior_std": settings.prior_std, "decay": group["weight_decay"]}
                own["kl_weight"] = 1.0 / max(1, param.numel()) if first else 0.0
                groups.append(own | {"params": [param], "weight_decay": group["weight_decay"]})
        made = self._made(groups, facts)
        with torch.no_grad():
            for group in made.param_groups:
                if group["std_init"]:
                    (param,) = group["params"]
                    param.normal_(0.0, 0.1)
                    made.start_of(param)["rho"].add_(torch.randn_like(param), alpha=0.1)
        return made
