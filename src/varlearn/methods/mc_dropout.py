"""MC-dropout (Gal and Ghahramani, 2016): SGD with dropout, which stays on for predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from varlearn.methods.sgd import SGDMethod
from varlearn.methods.shared_settings import Optim
from varlearn.setting_checks import Rule

if TYPE_CHECKING:
    from torch import nn

    from varlearn.prediction import Dropout
    from varlearn.types import Posterior


@dataclass(frozen=True)
class MCDropoutSettings(Optim):
    """Settings of MC-dropout.

    Attributes:
        lr: peak learning rate; the paper's comparison has 0.2.
        rate: share of the activations that are dropped, after each activation. A network that has dropout keeps its own
            rates.
    """

    RULES: ClassVar[dict[str, Rule]] = Optim.RULES | {
        "rate": ("> 0 and < 1", lambda value: 0.0 < value < 1.0, "0.05 is the paper's")
    }

    name: str = "mc-dropout"
    lr: float = 0.1
    rate: float = 0.05


class MCDropoutMethod(SGDMethod[MCDropoutSettings]):
    """SGD's weights as a point; predictions are averaged over dropout masks, 32 in the paper's comparison."""

    name = "mc-dropout"
    label = "MC-dropout"
    cost = "as SGD"
    Settings = MCDropoutSettings
    averages = True

    def prepare(self, model: nn.Module) -> nn.Module:
        """The network with dropout; the names of its weights stay."""
        from varlearn.approximations.dropout_insertion import drops, insert_dropout

        return model if drops(model) else insert_dropout(model, self.settings.rate)

    def predictor(self, posterior: Posterior) -> Dropout:
        """Masks at the weights, one per sample."""
        from varlearn.prediction import Dropout

        return Dropout()
