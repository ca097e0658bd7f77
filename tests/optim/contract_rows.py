"""The table of optimizers: one row each. Every promise of `test_contract*.py` is run over every row.

A new optimizer is one more `Contract` in `CONTRACTS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from varlearn.optim import BBB, BSAM, IVON, IVON2021, SAM, VOGN, AdaHessian, VAdamW

Kwargs = dict[str, Any]


@dataclass(frozen=True)
class Contract:
    """What the tests need to know of an optimizer.

    Attributes:
        name: for the test ids.
        optimizer: its class.
        base: keyword arguments that each test starts from.
        variants: name -> keyword arguments on top of `base`; together they visit every hyperparameter.
        paths: name -> keyword arguments that choose an implementation. "loop" is the one the others are compared with.
        backward: takes the gradients for one `step()` and returns the loss, as a user would write it.
        dtypes: of the parameters it supports.
        bad: hyperparameter -> values that must be refused.
        in_closure: what a closure of `step(closure)` does: the gradients of one pass. It returns the loss.
        passes: how often `step(closure)` calls the closure for each sample.
        couples: whether the step of one parameter depends on the gradients of the others.
    """

    name: str
    optimizer: type[Optimizer]
    base: Kwargs
    variants: Mapping[str, Kwargs]
    paths: Mapping[str, Kwargs]
    backward: Callable[[Any, Callable[[], Tensor]], Tensor]
    dtypes: tuple[torch.dtype, ...]
    bad: Mapping[str, tuple[Any, ...]]
    in_closure: Callable[[Any, Tensor], None] = lambda opt, loss: loss.backward()
    passes: int = 1
    couples: bool = False

    @property
    def betas(self) -> tuple[float, float]:
        return self.base.get("betas", (0.9, 0.999))

    def reseeded(self, **kwargs: Any) -> Kwargs:
        """Keyword arguments with another seed, where the optimizer draws anything."""
        return {**kwargs, "seed": 7} if "seed" in self.base else kwargs

    def make(self, params: Any, **overrides: Any) -> Any:
        return self.optimizer(params, **deepcopy({**self.base, **overrides}))  # a tensor lr is changed in place

    def step(self, opt: Any, loss: Callable[[], Tensor]) -> Tensor:
        value = self.backward(opt, loss)
        opt.step()
        return value


def in_block(opt: Any, loss: Callable[[], Tensor]) -> Tensor:
    """The paper's loop: one Monte-Carlo sample, gradients inside the block."""
    with opt.sampled_params(train=True):
        opt.zero_grad()
        value = loss()
        value.backward()
    return value.detach()


def squares(opt: Any, loss: Tensor) -> None:
    """Stands for the squares of single examples, which `mse` does not have: those of the batch."""
    loss.backward()
    params = [param for group in opt.param_groups for param in group["params"]]
    opt.hand_in_hess({param: param.grad.square() for param in params if param.grad is not None})


def in_block_with_squares(opt: Any, loss: Callable[[], Tensor]) -> Tensor:
    """One sample, its gradients and the squares of its examples' gradients."""
    with opt.sampled_params(train=True):
        opt.zero_grad()
        value = loss()
        squares(opt, value)
    return value.detach()


def with_diagonal(opt: Any, loss: Callable[[], Tensor]) -> Tensor:
    """Gradients, and the diagonal of the Hessian."""
    opt.zero_grad()
    value = loss()
    opt.backward(value)
    return value.detach()


def in_two_passes(opt: Any, loss: Callable[[], Tensor]) -> Tensor:
    """Gradients at the weights, and at those where the loss is about largest nearby."""
    opt.zero_grad()
    with opt.two_passes():
        value = loss()
        value.backward()
        opt.perturb()
        loss().backward()
    return value.detach()


def in_block_and_perturbed(opt: Any, loss: Callable[[], Tensor]) -> Tensor:
    """Gradients at a sample, and at the perturbed mean."""
    with opt.sampled_params(train=True):
        opt.zero_grad()
        value = loss()
        value.backward()
        opt.perturb()
        loss().backward()
    return value.detach()


NAN, INF = math.nan, math.inf
_NOT_A_NUMBER = ("0.1", None, [0.1], True, 1j, torch.ones(2))

PATHS: Mapping[str, Kwargs] = {
    "loop": {"foreach": False, "fused": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
    "default": {},
}
_BAD_BETAS = (
    *((bad, 0.9) for bad in (1.0, -0.1, NAN, INF, "0.9", None)),
    *((0.9, bad) for bad in (1.0, -0.1, NAN, INF, "0.9", None)),
    0.9,
    (0.9,),
    (0.9, 0.9, 0.9),
    "ab",
    None,
)
_BAD_FOR_ALL: Mapping[str, tuple[Any, ...]] = {
    "lr": (-0.1, NAN, INF, *_NOT_A_NUMBER, torch.tensor(-1.0), torch.tensor(1j)),
    "weight_decay": (-1e-4, NAN, INF, *_NOT_A_NUMBER),
    "betas": _BAD_BETAS,
    "mc_samples": (0, -1, 1.0, NAN, "1", None, True),
    "maximize": (1, None, "yes"),
    "noise": ("gaussian", None, 1),
    "seed": (-1, 0.5, "0", True),
    "nonfinite": ("ignore", None, True),
    "max_grad_norm": (0.0, -1.0, NAN, INF, "1", True),
    "memory": ("slow", None),
    "foreach": ("yes", 2),
    "fused": ("yes", 2),
}

_BAD_SCALES: Mapping[str, tuple[Any, ...]] = {
    "ess": (0.0, -1.0, NAN, INF, *_NOT_A_NUMBER),
    "hess_init": (0.0, -1.0, NAN, INF, *_NOT_A_NUMBER),
    "damping": (-0.1, NAN, INF, *_NOT_A_NUMBER),
    "clip_radius": (0.0, -1.0, NAN, *_NOT_A_NUMBER),
    "rescale_lr": (1, None, "yes"),
    "prior_mean": (NAN, INF, "zero", True, 1j, torch.ones(2)),
}
_ALL_DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
_POINT_PATHS: Mapping[str, Kwargs] = {"loop": {"foreach": False}, "foreach": {"foreach": True}, "default": {}}
_FOR_POINTS = ("lr", "weight_decay", "maximize", "nonfinite", "max_grad_norm", "foreach")
_BAD_FOR_POINTS = {name: _BAD_FOR_ALL[name] for name in _FOR_POINTS}

_FOR_ALL: Mapping[str, Kwargs] = {
    "plain": {},
    "max_grad_norm": {"max_grad_norm": 1.0},
    "raise": {"nonfinite": "raise"},
}
_FOR_SAMPLES: Mapping[str, Kwargs] = {
    **_FOR_ALL,
    "mc_samples": {"mc_samples": 3},
    "lean": {"memory": "lean"},
    "shared": {"noise": "shared"},
}

CONTRACTS = (
    Contract(
        name="IVON",
        optimizer=IVON,
        base={"lr": 0.1, "ess": 100.0, "hess_init": 0.5, "betas": (0.9, 0.99), "seed": 1},
        variants={
            **_FOR_SAMPLES,
            "clip_radius": {"clip_radius": 0.5, "rescale_lr": False},
            "no_rescale": {"rescale_lr": False, "lr": 0.05},
            "no_debias": {"debias": False},
            "no_decay": {"weight_decay": 0.0},
            "squared_gradient": {"hess_approx": "squared_gradient"},
            "maximize": {"maximize": True, "lr": 0.01},
            "prior_init": {"prior_mean": "init", "weight_decay": 0.1},
            "prior_number": {"prior_mean": 0.25, "weight_decay": 0.1},
            "tensor_lr": {"lr": torch.tensor(0.1)},
        },
        paths=PATHS,
        backward=in_block,
        dtypes=_ALL_DTYPES,
        bad={
            **_BAD_FOR_ALL,
            **{name: bad for name, bad in _BAD_SCALES.items() if name != "damping"},
            "debias": (0, None, "no"),
            "hess_approx": ("hutchinson", "", None, 1),
        },
    ),
    Contract(
        name="VAdamW",
        optimizer=VAdamW,
        base={"lr": 0.05, "n": 20, "batch_size": 8, "betas": (0.9, 0.99), "seed": 1},
        variants={
            **_FOR_SAMPLES,
            "constant_ess": {"ess": 50.0},
            "prior_width": {"prior_width": 0.1},
            "eps": {"eps": 1e-3},
            "no_decay": {"weight_decay": 0.0},
            "maximize": {"maximize": True, "lr": 0.01},
            "tensor_lr": {"lr": torch.tensor(0.05)},
        },
        paths=PATHS,
        backward=in_block,
        dtypes=_ALL_DTYPES,
        bad={
            **_BAD_FOR_ALL,
            "n": (0, -1, NAN, INF, *_NOT_A_NUMBER),
            "batch_size": (0, -1, NAN, INF, *_NOT_A_NUMBER),
            "eps": (-1e-8, NAN, INF, *_NOT_A_NUMBER),
            "ess": (0.0, -1.0, NAN, INF, "0.1", [0.1], True, 1j, torch.ones(2)),
            "prior_width": (0.0, -1.0, NAN, INF, "1", True),
        },
    ),
    Contract(
        name="IVON2021",
        optimizer=IVON2021,
        base={"lr": 0.1, "ess": 100.0, "hess_init": 0.5, "betas": (0.9, 0.99), "seed": 1},
        variants={
            **_FOR_SAMPLES,
            "damping": {"damping": 0.1},
            "no_damping": {"damping": 0.0},
            "clip_radius": {"clip_radius": 0.5, "rescale_lr": False},
            "squared_gradient": {"hess_approx": "squared_gradient"},
            "maximize": {"maximize": True, "lr": 0.01},
            "prior_init": {"prior_mean": "init", "weight_decay": 0.1},
            "tensor_lr": {"lr": torch.tensor(0.1)},
        },
        paths=PATHS,
        backward=in_block,
        dtypes=_ALL_DTYPES,
        bad={**_BAD_FOR_ALL, **_BAD_SCALES, "hess_approx": ("hutchinson", "", None, 1)},
    ),
    Contract(
        name="VOGN",
        optimizer=VOGN,
        base={"lr": 0.02, "ess": 100.0, "hess_init": 0.5, "betas": (0.9, 0.99), "seed": 1},
        variants={
            **_FOR_ALL,
            "mc_samples": {"mc_samples": 3},
            "damping": {"damping": 0.1},
            "average": {"momentum": "average", "lr": 0.2, "damping": 0.0},
            "clip_radius": {"clip_radius": 0.5, "rescale_lr": False},
            "no_decay": {"weight_decay": 0.0},
            "maximize": {"maximize": True, "lr": 0.002},
            "prior_number": {"prior_mean": 0.25, "weight_decay": 0.1},
            "lean": {"memory": "lean"},
            "independent": {"noise": "independent"},
            "tensor_lr": {"lr": torch.tensor(0.02)},
        },
        paths=PATHS,
        backward=in_block_with_squares,
        dtypes=_ALL_DTYPES,
        bad={**_BAD_FOR_ALL, **_BAD_SCALES, "momentum": ("nesterov", None, 0.9)},
        in_closure=squares,
    ),
    Contract(
        name="BBB",
        optimizer=BBB,
        base={"lr": 0.05, "ess": 100.0, "hess_init": 0.5, "betas": (0.9, 0.99), "seed": 1},
        variants={
            **_FOR_SAMPLES,
            "std_init": {"std_init": 0.05},
            "prior_std": {"prior_std": 0.5},
            "kl_weight": {"kl_weight": 0.1},
            "decay": {"decay": 0.01},
            "eps": {"eps": 1e-3},
            "maximize": {"maximize": True, "lr": 0.01},
            "prior_init": {"prior_mean": "init", "weight_decay": 0.1},
            "tensor_lr": {"lr": torch.tensor(0.05)},
        },
        paths=_POINT_PATHS,
        backward=in_block,
        dtypes=_ALL_DTYPES,
        bad={
            **{name: bad for name, bad in _BAD_FOR_ALL.items() if name != "fused"},
            **{name: _BAD_SCALES[name] for name in ("ess", "hess_init", "prior_mean")},
            "eps": (-1e-8, NAN, INF, *_NOT_A_NUMBER),
            "std_init": (-0.1, NAN, INF, "1", True),
            "prior_std": (0.0, -1.0, NAN, INF, "1", True),
            "kl_weight": (-1.0, NAN, INF, *_NOT_A_NUMBER),
            "decay": (-0.1, NAN, INF, *_NOT_A_NUMBER),
        },
    ),
    Contract(
        name="BSAM",
        optimizer=BSAM,
        base={"lr": 0.05, "ess": 100.0, "hess_init": 0.5, "betas": (0.9, 0.99), "seed": 1},
        variants={
            **_FOR_ALL,
            "mc_samples": {"mc_samples": 3},
            "damping": {"damping": 0.5},
            "rho": {"rho": 0.1},
            "no_rho": {"rho": 0.0},
            "clip_radius": {"clip_radius": 0.5},
            "maximize": {"maximize": True, "lr": 0.01},
            "prior_init": {"prior_mean": "init", "weight_decay": 0.1},
            "tensor_lr": {"lr": torch.tensor(0.05)},
        },
        paths=PATHS,
        backward=in_block_and_perturbed,
        dtypes=_ALL_DTYPES,
        bad={
            **{name: bad for name, bad in _BAD_FOR_ALL.items() if name not in ("noise", "memory")},
            **{name: bad for name, bad in _BAD_SCALES.items() if name != "rescale_lr"},
            "rho": (-0.1, NAN, INF, *_NOT_A_NUMBER),
        },
        passes=2,
    ),
    Contract(
        name="SAM",
        optimizer=SAM,
        base={"lr": 0.02},
        variants={
            **_FOR_ALL,
            "rho": {"rho": 0.5},
            "no_rho": {"rho": 0.0},
            "no_momentum": {"beta1": 0.0, "lr": 0.1},
            "decay": {"weight_decay": 1e-2},
            "maximize": {"maximize": True, "lr": 0.01},
            "tensor_lr": {"lr": torch.tensor(0.02)},
        },
        paths=_POINT_PATHS,
        backward=in_two_passes,
        dtypes=_ALL_DTYPES,
        bad={**_BAD_FOR_POINTS, "rho": (-0.1, NAN, INF, *_NOT_A_NUMBER)},
        passes=2,
        couples=True,
    ),
    Contract(
        name="AdaHessian",
        optimizer=AdaHessian,
        base={"lr": 0.05, "betas": (0.9, 0.99), "seed": 1},
        variants={
            **_FOR_ALL,
            "eps": {"eps": 1e-3},
            "hessian_power": {"hessian_power": 0.5},
            "no_power": {"hessian_power": 0.0},
            "decay": {"weight_decay": 1e-2},
            "maximize": {"maximize": True, "lr": 0.01},
            "tensor_lr": {"lr": torch.tensor(0.05)},
        },
        paths=_POINT_PATHS,
        backward=with_diagonal,
        dtypes=_ALL_DTYPES,
        bad={
            **_BAD_FOR_POINTS,
            "betas": _BAD_BETAS,
            "seed": _BAD_FOR_ALL["seed"],
            "eps": (-1e-8, NAN, INF, *_NOT_A_NUMBER),
            "hessian_power": (-1.0, NAN, INF, *_NOT_A_NUMBER),
        },
        in_closure=lambda opt, loss: opt.backward(loss),
    ),
)
