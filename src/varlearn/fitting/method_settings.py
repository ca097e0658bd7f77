"""From the name of a method to its settings: the rules that need no tuning."""

from __future__ import annotations

import math
from dataclasses import fields
from numbers import Real
from typing import Any

from torch import nn

from varlearn.methods import Optim, named, settings_for


def chosen_settings(method: str | Optim, lr: float | None, model: nn.Module, n: int, steps: int) -> Optim:
    """The settings of a method for this network and this length of training.

    A method with a rule gives the settings itself (`Method.untuned`). Others need `lr`, unless their class of settings
    has its own default.

    Args:
        method: a name of `varlearn.methods.METHODS` or "auto", or complete settings.
        lr: peak learning rate; None for the rule's.
        model: with its initial weights.
        n: terms of the training loss.
        steps: of the whole run.

    >>> chosen_settings("sgd", None, nn.Linear(1, 1), n=100, steps=100)
    Traceback (most recent call last):
    ...
    ValueError: method='sgd' has no rule for its learning rate; pass lr, e.g. lr=0.05, or use method='auto'
    """
    if isinstance(method, Optim):
        if lr is not None:
            raise ValueError(f"lr={lr} and settings with lr={method.lr} are given; leave lr out")
        return settings_for(method)
    if not isinstance(method, str):
        raise TypeError(
            f"method is a {type(method).__name__} and must be a name, e.g. 'auto' or 'ivon', or complete "
            "settings, e.g. varlearn.methods.Optim('ivon', lr=0.1)"
        )
    if lr is not None and (not isinstance(lr, Real) or isinstance(lr, bool) or not 0.0 < lr < math.inf):
        raise ValueError(f"lr={lr!r} must be a number > 0; leave it out for the rule's")
    kind = named(method, "method")
    given: dict[str, Any] = {"name": kind.name} | ({} if lr is None else {"lr": float(lr)})
    rule = kind.untuned(model, n, steps)
    if rule is None:
        rule = {}
        default = next(field.default for field in fields(kind.Settings) if field.name == "lr")
        if lr is None and default == Optim.lr:
            raise ValueError(
                f"method={method!r} has no rule for its learning rate; pass lr, e.g. lr=0.05, or use method='auto'"
            )
    return kind.Settings(**rule | given)
