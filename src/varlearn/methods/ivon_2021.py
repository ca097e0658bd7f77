"""The earlier IVON that won the NeurIPS 2021 competition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from varlearn.methods.method import Facts
from varlearn.methods.parameter_groups import parameter_groups
from varlearn.methods.shared_settings import Optim
from varlearn.methods.variational_method import VariationalMethod
from varlearn.setting_checks import Rule, not_negative

if TYPE_CHECKING:
    from torch import nn

    from varlearn.optim import IVON2021


@dataclass(frozen=True)
class IVON2021Settings(Optim):
    """Settings of the IVON of 2021.

    Attributes:
        damping: gamma, added to each Hessian estimate.
    """

    RULES: ClassVar[dict[str, Rule]] = Optim.RULES | {"damping": not_negative("1e-3 is usual; 0 leaves it out")}

    name: str = "ivon-2021"
    damping: float = 1e-3


class IVON2021Method(VariationalMethod[IVON2021Settings]):
    """As IVON, with a damped Hessian estimate and the weight decay inside the momentum.

    >>> from torch import nn
    >>> facts = Facts(n=100, batch_size=10, steps=50, task="classification")
    >>> group = IVON2021Method(IVON2021Settings()).optimizer(nn.Linear(1, 1), facts).param_groups[0]
    >>> group["ess"], group["damping"]
    (100.0, 0.001)
    """

    name = "ivon-2021"
    label = "IVON (2021)"
    cost = "forward and backward pass per sample; three copies of the weights"
    Settings = IVON2021Settings

    def optimizer(self, model: nn.Module, facts: Facts) -> IVON2021:
        """IVON2021 with lambda = n where `ess` is None."""
        from varlearn.optim import IVON2021

        settings = self.settings
        return IVON2021(
            parameter_groups(model, settings),
            damping=settings.damping,
            clip_radius=settings.clip_radius,
            rescale_lr=settings.rescale_lr,
            **self.arguments(facts),
        )
