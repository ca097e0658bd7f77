"""The settings that methods share: one name has one meaning in all of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from varlearn.setting_checks import Rule, at_least, check, not_negative, positive

_MOMENTUM: Rule = (">= 0 and < 1", lambda value: 0 <= value < 1, "0.9 is usual for beta1, 0.999 or more for beta2")


@dataclass(frozen=True)
class Optim:
    """Which method, and its settings. A setting that the method does not read is ignored.

    A method with further settings declares a subclass, with its own defaults.

    Attributes:
        name: of the method, e.g. "ivon", "adamw" or "sgd"; "auto" becomes the name of the default method.
        lr: peak learning rate alpha.
        weight_decay: delta, the prior precision over ess (IVON), decoupled decay (AdamW), L2 (SGD).
        matrices_only: decay parameters of two and more dimensions alone, as is usual for transformers.
        beta1: momentum; SGD's momentum too.
        beta2: average of the Hessian (IVON) or of squared gradients (AdamW).
        ess: lambda; None for the number of training examples (tokens, of a text to be continued).
        hess_init: h0.
        clip_radius: xi.
        rescale_lr: multiply lr by h0 + delta.
        samples: Monte-Carlo samples per micro-batch.

    >>> Optim("sgd", lr=0.1).beta1
    0.9
    """

    RULES: ClassVar[dict[str, Rule]] = {
        "lr": not_negative("0.2 is the paper's for IVON"),
        "weight_decay": not_negative("2e-4 is the paper's"),
        "beta1": _MOMENTUM,
        "beta2": _MOMENTUM,
        "ess": positive("leave it out for the number of training examples"),
        "hess_init": positive("0.01 to 1 is typical"),
        "clip_radius": ("> 0", lambda value: value > 0, "leave it out for no clipping; 1e-3 helps transformers"),
        "samples": at_least(1, "1 is the paper's"),
    }

    name: str = "ivon"
    lr: float = 0.2
    weight_decay: float = 2e-4
    matrices_only: bool = False
    beta1: float = 0.9
    beta2: float = 1 - 1e-5
    ess: float | None = None
    hess_init: float = 0.5
    clip_radius: float = math.inf
    rescale_lr: bool = True
    samples: int = 1

    def __post_init__(self) -> None:
        from varlearn.methods.method_table import named  # the table's methods import this class

        object.__setattr__(self, "name", named(self.name).name)
        check(self, "optim.")


def settings_for(optim: Optim) -> Optim:
    """The same settings in the class that the named method declares.

    Settings that the method does not have are left out. Settings that `optim` does not have, or has at the default of
    its own class, take the method's default: a rate of IVON means nothing to another method.

    >>> settings_for(Optim("sgd", lr=0.1)) == Optim("sgd", lr=0.1)
    True
    >>> settings_for(Optim("auto", beta1=0.8)).lr, settings_for(Optim("auto", beta1=0.8)).beta1
    (None, 0.8)
    """
    from varlearn.methods.method_table import named

    wanted = named(optim.name).Settings
    if type(optim) is wanted:
        return optim
    known = {field.name for field in fields(wanted)}
    given = {
        field.name: getattr(optim, field.name) for field in fields(optim) if getattr(optim, field.name) != field.default
    }
    chosen: dict[str, Any] = {"name": optim.name}
    chosen |= {name: value for name, value in given.items() if name in known}
    return wanted(**chosen)
