"""The table of all methods. Everything that trains, predicts or reports reads it."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

from varlearn.methods.adahessian import AdaHessianMethod
from varlearn.methods.adamw import AdamWMethod
from varlearn.methods.bbb import BBBMethod, BBBPaperMethod
from varlearn.methods.bsam import BSAMMethod
from varlearn.methods.ivon import IVONMethod
from varlearn.methods.ivon_2021 import IVON2021Method
from varlearn.methods.laplace import LaplaceMethod
from varlearn.methods.mc_dropout import MCDropoutMethod
from varlearn.methods.method import Method
from varlearn.methods.sae import SAEMethod
from varlearn.methods.sam import SAMMethod
from varlearn.methods.sgd import SGDMethod
from varlearn.methods.swag import SWAGMethod
from varlearn.methods.vadamw import VAdamWMethod
from varlearn.methods.vogn import VOGNMethod
from varlearn.methods.vogn_paper import VOGNPaperMethod
from varlearn.setting_checks import shortened

METHODS: dict[str, type[Method[Any]]] = {
    "ivon": IVONMethod,
    "adamw": AdamWMethod,
    "sgd": SGDMethod,
    "vadamw": VAdamWMethod,
    "vogn": VOGNMethod,
    "vogn-paper": VOGNPaperMethod,
    "ivon-2021": IVON2021Method,
    "adahessian": AdaHessianMethod,
    "sam": SAMMethod,
    "bsam": BSAMMethod,
    "mc-dropout": MCDropoutMethod,
    "swag": SWAGMethod,
    "bbb": BBBMethod,
    "bbb-paper": BBBPaperMethod,
    "laplace": LaplaceMethod,
    "sae": SAEMethod,
}

AUTO = "vadamw"
"""The method that "auto" means: the one that does best without tuning, see `experiments/no_tuning`. A run stores this
name, so that it stays the same run when another method becomes the default."""


def named(name: str, setting: str = "optim.name") -> type[Method[Any]]:
    """The method with this name; "auto" is the default method.

    Args:
        name: of the method.
        setting: what the caller calls the name, for the message.

    >>> named("sgd").label, named("auto").name
    ('SGD', 'vadamw')
    >>> named("ivn")
    Traceback (most recent call last):
    ...
    ValueError: optim.name='ivn' must be one of ivon, adamw, ...; did you mean 'ivon'?
    """
    if name == "auto":
        return METHODS[AUTO]
    if isinstance(name, str) and name in METHODS:
        return METHODS[name]
    near = get_close_matches(str(name)[:100].lower(), METHODS, n=1)
    cure = f"did you mean {near[0]!r}?" if near else "use 'auto' for the default"
    raise ValueError(f"{setting}={shortened(name)} must be one of {', '.join(METHODS)}; {cure}")
