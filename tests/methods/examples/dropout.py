"""A method that changes the model: dropout while training and while predicting (Gal and Ghahramani, 2016)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from varlearn.methods import Optim
from varlearn.methods.sgd import SGDMethod
from varlearn.prediction import Dropout
from varlearn.setting_checks import Rule
from varlearn.types import Posterior, Sampler


@dataclass(frozen=True)
class DropoutSettings(Optim):
    """Settings of dropout.

    Attributes:
        rate: share of the hidden units that are dropped.
    """

    RULES: ClassVar[dict[str, Rule]] = Optim.RULES | {
        "rate": ("between 0 and 1", lambda value: 0.0 < value < 1.0, "0.1 is usual")
    }

    name: str = "dropout"
    lr: float = 0.1
    rate: float = 0.1


class DropoutMethod(SGDMethod[DropoutSettings]):
    """One row of the table."""

    name = "dropout"
    label = "MC-dropout"
    cost = "as SGD"
    Settings = DropoutSettings
    averages = True

    def prepare(self, model: nn.Module) -> nn.Module:
        for parent in list(model.modules()):
            for name, child in list(parent.named_children()):
                if isinstance(child, nn.ReLU):
                    setattr(parent, name, nn.Sequential(child, nn.Dropout(self.settings.rate)))
        return model

    def predictor(self, posterior: Posterior) -> Sampler:
        return Dropout()
