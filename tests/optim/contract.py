"""What the tests of the contract share: the network, its batches, comparisons, and the parameters over the rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.optim.contract_rows import CONTRACTS, PATHS, Contract, in_block

__all__ = ["CONTRACTS", "PATHS", "Contract", "in_block"]


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
_SEPARABLE, _DRAWING = [row for row in CONTRACTS if not row.couples], [row for row in CONTRACTS if "seed" in row.base]
separable_rows = pytest.mark.parametrize("row", _SEPARABLE, ids=lambda row: row.name)
drawing_rows = pytest.mark.parametrize("row", _DRAWING, ids=lambda row: row.name)
rows_and_paths = pytest.mark.parametrize(
    ("row", "path"),
    [pytest.param(row, path, id=f"{row.name}-{path}") for row in CONTRACTS for path in row.paths if path != "default"],
)
cases_and_faster_paths = pytest.mark.parametrize(
    ("row", "kwargs", "path"),
    [
        pytest.param(row, kwargs, path, id=f"{row.name}-{name}-{path}")
        for row in CONTRACTS
        for name, kwargs in row.variants.items()
        for path in row.paths
        if path != "loop"
    ],
)
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
