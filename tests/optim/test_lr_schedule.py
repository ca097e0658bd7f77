"""The schedule of one line, against PyTorch's own parts."""

import math

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader

from varlearn.optim import VAdamW, warmup_cosine


def rates(optimizer: torch.optim.Optimizer, schedule: lr_scheduler.LRScheduler, steps: int) -> list[float]:
    found = []
    for _ in range(steps):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return found


@pytest.mark.parametrize("warmup", [0.1, 4])
def test_it_is_pytorchs_warm_up_and_cosine(warmup: float) -> None:
    steps, peak = 40, 0.3
    ours, theirs = (torch.optim.SGD([torch.zeros(1)], lr=peak) for _ in range(2))
    parts = [lr_scheduler.LinearLR(theirs, 1e-9, 1.0, 4), lr_scheduler.CosineAnnealingLR(theirs, steps - 4)]
    expected = rates(theirs, lr_scheduler.SequentialLR(theirs, parts, [4]), steps)
    assert rates(ours, warmup_cosine(ours, steps, warmup=warmup), steps) == pytest.approx(expected, abs=1e-8)


def test_steps_after_the_end_stay_at_the_final_rate() -> None:
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    assert rates(optimizer, warmup_cosine(optimizer, 4, final=0.1), 9)[4:] == pytest.approx([0.1] * 5)


def test_the_optimizer_knows_the_length_of_its_run() -> None:
    optimizer = VAdamW.for_loader(nn.Linear(1, 1), DataLoader(range(100), batch_size=10), lr=1.0, epochs=4)
    schedule = warmup_cosine(optimizer)
    for _ in range(21):  # 2 of 40 steps are the warm-up, 19 of 38 half of the fall
        optimizer.step()
        schedule.step()
    assert math.isclose(optimizer.param_groups[0]["lr"], 0.5)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "the optimizer does not know its steps; pass steps=epochs"),
        ({"steps": 0}, "steps=0 must be at least 1"),
        ({"steps": 5, "warmup": -0.1}, "warmup=-0.1 must be a share"),
        ({"steps": 5, "warmup": 1.5}, "warmup=1.5 must be a share"),
    ],
)
def test_what_makes_no_schedule_is_refused(options: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        warmup_cosine(torch.optim.SGD([torch.zeros(1)], lr=1.0), **options)  # type: ignore[arg-type]
