"""The table of all methods. Everything that trains, predicts or reports reads it."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

from varlearn.methods.adamw import AdamWMethod
from varlearn.methods.ivon import IVONMethod
from varlearn.methods.method import Method
from varlearn.methods.sgd import SGDMethod
from varlearn.methods.vadamw import VAdamWMethod
from varlearn.setting_checks import shortened

METHODS: dict[str, type[Method[Any]]] = {
    "ivon": IVONMethod,
    "adamw": AdamWMethod,
    "sgd": SGDMethod,
    "vadamw": VAdamWMethod,
}


def named(name: str) -> type[Method[Any]]:
    """The method with this name.

    >>> named("sgd").label
    'SGD'
    >>> named("ivn")
    Traceback (most recent call last):
    ...
    ValueError: optim.name='ivn' must be one of ivon, adamw, sgd, vadamw; did you mean 'ivon'?
    """
    if isinstance(name, str) and name in METHODS:
        return METHODS[name]
    near = get_close_matches(str(name)[:100], METHODS, n=1)
    cure = f"did you mean {near[0]!r}?" if near else f"the first is usual: {next(iter(METHODS))!r}"
    raise ValueError(f"optim.name={shortened(name)} must be one of {', '.join(METHODS)}; {cure}")
