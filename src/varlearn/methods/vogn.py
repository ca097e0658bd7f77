"""VOGN (Osawa et al., 2019), as Equation 2 of the paper has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from varlearn.methods.curvature_passes import Labels, gauss_newton_pass
from varlearn.methods.method import Batch, Facts, S, Training
from varlearn.methods.parameter_groups import parameter_groups
from varlearn.methods.shared_settings import Optim
from varlearn.methods.variational_method import VariationalMethod
from varlearn.setting_checks import Rule, not_negative

if TYPE_CHECKING:
    from torch import Tensor, nn

    from varlearn.optim import VOGN


@dataclass(frozen=True)
class VOGNSettings(Optim):
    """Settings of VOGN.

    Attributes:
        lr: peak learning rate. The momentum is a sum, so 0.02 moves as far as 0.2 with IVON's average.
        damping: gamma, added to h + delta.
        labels: whose gradients are squared: "true" labels, or labels "sampled" from the model.
    """

    RULES: ClassVar[dict[str, Rule]] = Optim.RULES | {"damping": not_negative("1e-3 is usual; 0 leaves it out")}

    name: str = "vogn"
    lr: float = 0.02
    damping: float = 1e-3
    labels: Labels = "true"


class GaussNewtonMethod(VariationalMethod[S]):
    """A variational method whose hhat is the mean of single examples' squared gradients."""

    momentum: ClassVar[Literal["sum", "average"]]
    passes = 2

    def prepare(self, model: nn.Module) -> nn.Module:
        """The network unchanged; one that mixes the examples of a batch is refused."""
        from varlearn.optim.per_example import refuse_mixed_examples

        refuse_mixed_examples(model)
        return model

    def optimizer(self, model: nn.Module, facts: Facts) -> VOGN:
        """VOGN with lambda = n where `ess` is None."""
        from varlearn.optim import VOGN

        settings = self.settings
        return VOGN(
            parameter_groups(model, settings),
            damping=getattr(settings, "damping", 0.0),
            momentum=self.momentum,
            clip_radius=settings.clip_radius,
            rescale_lr=settings.rescale_lr,
            **self.arguments(facts),
        )

    def sample_pass(self, training: Training, batch: Batch, draw: int, more: bool) -> Tensor:
        """One vectorized pass over the examples."""
        return gauss_newton_pass(training, batch, draw, getattr(self.settings, "labels", "true"), more)


class VOGNMethod(GaussNewtonMethod[VOGNSettings]):
    """Equation 2: the prior inside the momentum, which is a sum, and damping.

    >>> from torch import nn
    >>> facts = Facts(n=100, batch_size=10, steps=50, task="classification")
    >>> group = VOGNMethod(VOGNSettings(damping=0.1)).optimizer(nn.Linear(1, 1), facts).param_groups[0]
    >>> group["ess"], group["damping"], group["momentum"]
    (100.0, 0.1, 'sum')
    """

    name = "vogn"
    label = "VOGN"
    cost = "1.7 to 2.5 forward and backward passes per sample; three copies of the weights, and a gradient per example"
    Settings = VOGNSettings
    momentum = "sum"
