"""Learning rates and schedulers, for every row of the contract table."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.optim import AdamW, lr_scheduler
from torch.optim.lr_scheduler import LRScheduler

from tests.optim.contract import (
    Contract,
    TinyNet,
    assert_same,
    fresh,
    rows,
    rows_and_paths,
    snapshot,
    train,
    weights,
)

SCHEDULERS: dict[str, Callable[[Any], LRScheduler]] = {
    "LambdaLR": lambda opt: lr_scheduler.LambdaLR(opt, lambda epoch: 0.9**epoch),
    "MultiplicativeLR": lambda opt: lr_scheduler.MultiplicativeLR(opt, lambda _: 0.9),
    "StepLR": lambda opt: lr_scheduler.StepLR(opt, 2),
    "MultiStepLR": lambda opt: lr_scheduler.MultiStepLR(opt, [1, 3]),
    "ConstantLR": lambda opt: lr_scheduler.ConstantLR(opt, 0.5, 2),
    "LinearLR": lambda opt: lr_scheduler.LinearLR(opt, 0.1, total_iters=4),
    "ExponentialLR": lambda opt: lr_scheduler.ExponentialLR(opt, 0.8),
    "SequentialLR": lambda opt: lr_scheduler.SequentialLR(
        opt, [lr_scheduler.ConstantLR(opt, 0.1, 2), lr_scheduler.ExponentialLR(opt, 0.5)], [2]
    ),
    "CosineAnnealingLR": lambda opt: lr_scheduler.CosineAnnealingLR(opt, 5),
    "ChainedScheduler": lambda opt: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(opt, 0.1, 2), lr_scheduler.ExponentialLR(opt, 0.5)]
    ),
    "ReduceLROnPlateau": lambda opt: lr_scheduler.ReduceLROnPlateau(opt, patience=0),
    "CyclicLR": lambda opt: lr_scheduler.CyclicLR(opt, 0.01, 0.1, 2),
    "CosineAnnealingWarmRestarts": lambda opt: lr_scheduler.CosineAnnealingWarmRestarts(opt, 2),
    "OneCycleLR": lambda opt: lr_scheduler.OneCycleLR(opt, 0.2, total_steps=8),
    "PolynomialLR": lambda opt: lr_scheduler.PolynomialLR(opt, 4),
}


def test_no_scheduler_is_forgotten() -> None:
    assert set(SCHEDULERS) == set(lr_scheduler.__all__) - {"LRScheduler"}


@pytest.mark.parametrize("tensor", [False, True], ids=["float", "tensor"])
@pytest.mark.parametrize("name", SCHEDULERS)
@rows
def test_every_scheduler_drives_it_as_it_drives_adamw(row: Contract, name: str, tensor: bool) -> None:
    def run(opt: Any, step: Callable[[int], Any]) -> list[tuple[float, float]]:
        scheduler: Any = SCHEDULERS[name](opt)
        seen = []
        for index in range(6):
            seen.append((float(opt.param_groups[0]["lr"]), float(opt.param_groups[0]["betas"][0])))
            step(index)
            scheduler.step(1.0) if name == "ReduceLROnPlateau" else scheduler.step()
        return seen

    model, opt = fresh(row, lr=torch.tensor(0.1, dtype=torch.float64) if tensor else 0.1)
    seen = run(opt, lambda index: train(row, model, opt, [index]))
    oracle = AdamW(TinyNet().parameters(), lr=0.1, betas=row.betas)
    expected = run(oracle, lambda index: oracle.step())
    torch.testing.assert_close(torch.tensor(seen), torch.tensor(expected), rtol=1e-6, atol=1e-9)
    assert len({lr for lr, _ in seen}) > 1
    if tensor:
        assert isinstance(opt.param_groups[0]["lr"], Tensor)


@pytest.mark.parametrize("name", ["OneCycleLR", "SequentialLR", "CosineAnnealingLR"])
@rows
def test_resume_with_a_scheduler_is_bitwise(row: Contract, name: str) -> None:
    def build() -> tuple[TinyNet, Any, LRScheduler]:
        model, opt = fresh(row)
        return model, opt, SCHEDULERS[name](opt)

    def run(model: TinyNet, opt: Any, scheduler: LRScheduler, steps: range) -> None:
        for index in steps:
            train(row, model, opt, [index])
            scheduler.step()

    first = build()
    run(*first, range(3))
    saved = [copy.deepcopy(part.state_dict()) for part in first]
    run(*first, range(3, 6))
    second = build()
    for part, state in zip(second, saved, strict=True):
        part.load_state_dict(state)
    run(*second, range(3, 6))
    assert_same(snapshot(first[1]), snapshot(second[1]))


@pytest.mark.parametrize("lr", [torch.tensor(0.1), torch.tensor([0.1]), torch.tensor(0.1, dtype=torch.float64)])
@rows_and_paths
def test_tensor_lr_is_the_number_it_holds(row: Contract, lr: Tensor, path: str) -> None:
    model, opt = fresh(row, lr=lr, **row.paths[path])
    other, other_opt = fresh(row, lr=lr.item(), **row.paths[path])
    train(row, model, opt, range(3))
    train(row, other, other_opt, range(3))
    assert_same(weights(model), weights(other))
    opt.param_groups[0]["lr"].fill_(0.0)
    train(row, model, opt, range(3))
    assert_same(weights(model), weights(other))
