"""The defaults of the constructors: each is a decision of a paper or a benchmark, and runs depend on it."""

import inspect
import math
from typing import Any

import pytest
import torch
from torch import nn

from varlearn.optim import BBB, BSAM, IVON, IVON2021, SAM, VOGN, AdaHessian, VAdamW

ALL = {"nonfinite": "skip", "max_grad_norm": None, "foreach": None, "maximize": False}
DRAWING = ALL | {"seed": None, "mc_samples": 1}
IN_MEMORY = DRAWING | {"noise": "independent", "memory": "fast"}
COMPILED = IN_MEMORY | {"fused": None}
IVON_LIKE = {
    "hess_init": 1.0,
    "betas": (0.9, 0.99999),
    "weight_decay": 1e-4,
    "clip_radius": math.inf,
    "prior_mean": None,
}
ADAM_LIKE = {"betas": (0.9, 0.999), "eps": 1e-8}

DEFAULTS: dict[Any, dict[str, Any]] = {
    IVON: COMPILED | IVON_LIKE | {"rescale_lr": True, "debias": True, "hess_approx": "reparam"}
    | {"beta1": None, "beta2": None, "sync": None},  # the names of ivon-opt
    IVON2021: COMPILED | IVON_LIKE | {"rescale_lr": True, "damping": 1e-3, "hess_approx": "reparam"},
    VOGN: COMPILED | IVON_LIKE | {"rescale_lr": True, "damping": 1e-3, "momentum": "sum", "noise": "shared"},
    BSAM: DRAWING | IVON_LIKE | {"fused": None, "rho": 0.01, "damping": 0.1}
    | {"betas": (0.9, 0.999), "weight_decay": 1e-3},
    VAdamW: COMPILED | ADAM_LIKE | {"lr": 1e-3, "weight_decay": 0.01, "steps": None, "ess": None, "prior_width": None},
    BBB: IN_MEMORY | ADAM_LIKE | {"lr": 2e-3, "ess": 1.0, "hess_init": 0.5, "std_init": None, "weight_decay": 1e-4}
    | {"prior_std": None, "kl_weight": 1.0, "decay": 0.0, "prior_mean": None},
    SAM: ALL | {"lr": 0.1, "rho": 0.05, "beta1": 0.9, "weight_decay": 0.0},
    AdaHessian: ALL | ADAM_LIKE | {"lr": 0.05, "weight_decay": 0.0, "hessian_power": 1.0, "seed": None},
}  # fmt: skip


@pytest.mark.parametrize("optimizer", DEFAULTS, ids=lambda optimizer: optimizer.__name__)
def test_defaults(optimizer: Any) -> None:
    parameters = inspect.signature(optimizer).parameters.values()
    found = {each.name: each.default for each in parameters if each.default is not each.empty}
    assert found == DEFAULTS[optimizer]
    needed = {"lr": 0.1, "ess": 1.0} if optimizer is not VAdamW else {"n": 1, "batch_size": 1}
    given = {name: value for name, value in needed.items() if name in inspect.signature(optimizer).parameters}
    (group,) = optimizer([nn.Parameter(torch.ones(1))], **given).param_groups
    kept = found.keys() & group.keys() - {"seed", "ess", "lr", "fused", "prior_width"}
    assert {name: group[name] for name in kept} == {name: found[name] for name in kept}
    assert {name: type(value) for name, value in found.items()} == {
        name: type(value) for name, value in DEFAULTS[optimizer].items()
    }  # 1 is not True
