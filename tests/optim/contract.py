"""The table of optimizers: one row each. Every promise of `test_contract*.py` is run over every row.

A new optimizer is one more `Contract` in `CONTRACTS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from varlearn.optim import IVON, VAdamW

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
    """

    name: str
    optimizer: type[Optimizer]
    base: Kwargs
    variants: Mapping[str, Kwargs]
    paths: Mapping[str, Kwargs]
    backward: Callable[[Any, Callable[[], Tensor]], Tensor]
    dtypes: tuple[torch.dtype, ...]
    bad: Mapping[str, tuple[Any, ...]]

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

CONTRACTS = (
    Contract(
        name="IVON",
        optimizer=IVON,
        base={"lr": 0.1, "ess": 100.0, "hess_init": 0.5, "betas": (0.9, 0.99), "seed": 1},
        variants={
            "plain": {},
            "mc_samples": {"mc_samples": 3},
            "clip_radius": {"clip_radius": 0.5, "rescale_lr": False},
            "no_rescale": {"rescale_lr": False, "lr": 0.05},
            "no_debias": {"debias": False},
            "no_decay": {"weight_decay": 0.0},
            "squared_gradient": {"hess_approx": "squared_gradient"},
            "maximize": {"maximize": True, "lr": 0.01},
            "prior_init": {"prior_mean": "init", "weight_decay": 0.1},
            "prior_number": {"prior_mean": 0.25, "weight_decay": 0.1},
            "max_grad_norm": {"max_grad_norm": 1.0},
            "lean": {"memory": "lean"},
            "shared": {"noise": "shared"},
            "raise": {"nonfinite": "raise"},
            "tensor_lr": {"lr": torch.tensor(0.1)},
        },
        paths=PATHS,
        backward=in_block,
        dtypes=(torch.float64, torch.float32, torch.bfloat16, torch.float16),
        bad={
            **_BAD_FOR_ALL,
            "ess": (0.0, -1.0, NAN, INF, *_NOT_A_NUMBER),
            "hess_init": (0.0, -1.0, NAN, INF, *_NOT_A_NUMBER),
            "clip_radius": (0.0, -1.0, NAN, *_NOT_A_NUMBER),
            "rescale_lr": (1, None, "yes"),
            "debias": (0, None, "no"),
            "hess_approx": ("hutchinson", "", None, 1),
            "prior_mean": (NAN, INF, "zero", True, 1j, torch.ones(2)),
        },
    ),
    Contract(
        name="VAdamW",
        optimizer=VAdamW,
        base={"lr": 0.05, "n": 20, "batch_size": 8, "betas": (0.9, 0.99), "seed": 1},
        variants={
            "plain": {},
            "constant_ess": {"ess": 50.0},
            "prior_width": {"prior_width": 0.1},
            "eps": {"eps": 1e-3},
            "mc_samples": {"mc_samples": 3},
            "no_decay": {"weight_decay": 0.0},
            "maximize": {"maximize": True, "lr": 0.01},
            "max_grad_norm": {"max_grad_norm": 1.0},
            "lean": {"memory": "lean"},
            "shared": {"noise": "shared"},
            "raise": {"nonfinite": "raise"},
            "tensor_lr": {"lr": torch.tensor(0.05)},
        },
        paths=PATHS,
        backward=in_block,
        dtypes=(torch.float64, torch.float32, torch.bfloat16, torch.float16),
        bad={
            **_BAD_FOR_ALL,
            "n": (0, -1, NAN, INF, *_NOT_A_NUMBER),
            "batch_size": (0, -1, NAN, INF, *_NOT_A_NUMBER),
            "eps": (-1e-8, NAN, INF, *_NOT_A_NUMBER),
            "ess": (0.0, -1.0, NAN, INF, "0.1", [0.1], True, 1j, torch.ones(2)),
            "prior_width": (0.0, -1.0, NAN, INF, "1", True),
        },
    ),
)


class TinyNet(nn.Module):
    """3 -> 4 -> 2 with a scale: matrices, vectors and a 0-dim parameter."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.first, self.second = nn.Linear(3, 4, dtype=torch.float32), nn.Linear(4, 2, dtype=torch.float32)
        self.scale = nn.Parameter(torch.ones((), dtype=torch.float32))
        for param in self.parameters():
            nn.init.normal_(param, std=0.5, generator=generator)
        self.to(dtype)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.second(torch.tanh(self.first(inputs))) * self.scale


def batch(index: int = 0, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Eight examples of a regression problem, a different eight for each index."""
    generator = torch.Generator().manual_seed(100 + index)
    inputs = torch.randn(8, 3, generator=generator, dtype=torch.float32)
    return inputs.to(dtype), torch.stack([inputs.sum(1), inputs[:, 0] * inputs[:, 1]], 1).to(dtype)


def mse(model: nn.Module, index: int = 0) -> Tensor:
    """The loss of a model on batch number `index`."""
    inputs, targets = batch(index, next(model.parameters()).dtype)
    return nn.functional.mse_loss(model(inputs), targets)


def train(row: Contract, model: nn.Module, opt: Any, steps: Iterable[int]) -> None:
    for index in steps:
        row.step(opt, lambda index=index: mse(model, index))


def snapshot(opt: Any) -> dict[str, Any]:
    """Weights, state and groups, copied: what a refused call must leave as it was."""
    params = [param for group in opt.param_groups for param in group["params"]]
    aside = ("params", "differentiable")  # PyTorch adds the latter to every optimizer that is copied or loaded
    return {
        "weights": [param.detach().clone() for param in params],
        "state": [deepcopy(dict(opt.state[param])) if param in opt.state else None for param in params],
        "groups": [deepcopy({k: v for k, v in group.items() if k not in aside}) for group in opt.param_groups],
    }


def assert_same(first: Any, second: Any, where: str = "") -> None:
    """Equal to the last bit, through dicts and sequences."""
    if isinstance(first, Tensor):
        assert isinstance(second, Tensor), where
        assert first.dtype == second.dtype, f"{where}: {first.dtype} and {second.dtype}"
        assert torch.equal(first.detach(), second.detach()), f"{where}: {first} and {second}"
    elif isinstance(first, Mapping):
        assert first.keys() == second.keys(), where
        for name in first:
            assert_same(first[name], second[name], f"{where}/{name}")
    elif isinstance(first, (list, tuple)):
        assert len(first) == len(second), where
        for position, (one, other) in enumerate(zip(first, second, strict=True)):
            assert_same(one, other, f"{where}/{position}")
    else:
        assert first == second, f"{where}: {first} and {second}"


def weights(model: nn.Module) -> list[Tensor]:
    return [param.detach().clone() for param in model.parameters()]


rows = pytest.mark.parametrize("row", CONTRACTS, ids=lambda row: row.name)
cases = pytest.mark.parametrize(
    ("row", "kwargs"),
    [pytest.param(row, kwargs, id=f"{row.name}-{name}") for row in CONTRACTS for name, kwargs in row.variants.items()],
)
cases_and_paths = pytest.mark.parametrize(
    ("row", "kwargs", "path"),
    [
        pytest.param(row, kwargs, path, id=f"{row.name}-{name}-{path_name}")
        for row in CONTRACTS
        for name, kwargs in row.variants.items()
        for path_name, path in row.paths.items()
    ],
)
rows_and_dtypes = pytest.mark.parametrize(
    ("row", "dtype"), [pytest.param(row, dtype, id=f"{row.name}-{dtype}") for row in CONTRACTS for dtype in row.dtypes]
)


def fresh(row: Contract, dtype: torch.dtype = torch.float32, **kwargs: Any) -> tuple[TinyNet, Any]:
    model = TinyNet(dtype)
    return model, row.make(model.parameters(), **kwargs)


def tensor_state(opt: Any) -> list[Tensor]:
    return [value for state in opt.state.values() for value in state.values() if isinstance(value, Tensor)]
