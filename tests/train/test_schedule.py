"""The learning rate against PyTorch's schedulers."""

import pytest
import torch
from torch.optim import lr_scheduler

from varlearn.train.config import Train
from varlearn.train.schedule import lr_factor


@pytest.mark.parametrize(("warmup", "start", "final"), [(0, 0.0, 0.0), (5, 0.2, 0.0), (7, 0.5, 0.1)])
def test_cosine_after_a_warm_up_is_pytorchs(warmup: int, start: float, final: float) -> None:
    total = 40
    train = Train(schedule="cosine", warmup=warmup, warmup_from=start, final=final)
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    parts = [lr_scheduler.CosineAnnealingLR(optimizer, total - warmup, eta_min=final)]
    if warmup:
        parts.insert(0, lr_scheduler.LinearLR(optimizer, start, 1.0, warmup))
    oracle = lr_scheduler.SequentialLR(optimizer, parts, [warmup] if warmup else [])
    for step in range(total):
        assert lr_factor(train, step, total) == pytest.approx(oracle.get_last_lr()[0], abs=1e-12)
        optimizer.step()
        oracle.step()


def test_linear_and_constant() -> None:
    assert [lr_factor(Train(schedule="linear", final=0.5), step, 4) for step in (0, 2, 4)] == [1.0, 0.75, 0.5]
    assert {lr_factor(Train(schedule="constant"), step, 9) for step in range(9)} == {1.0}  # 5% of 9 steps is no warm-up


def test_a_warm_up_longer_than_the_run_is_cut_off() -> None:
    assert lr_factor(Train(warmup=10), 4, total=5) == 0.4
