"""A learning rate that never falls is warned of once, where the posterior is taken, and stands in diagnostics()."""

import warnings
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR, StepLR

from varlearn import IVON, DiagGaussian, VAdamW
from varlearn.optim import warmup_cosine

STEPS = 120
WORDS = r"The learning rate is still 0.01 after 120 steps, 100% of its peak.*CosineAnnealingLR"


def optimizer_of(kind: str, net: nn.Module, **options: Any) -> IVON | VAdamW:
    if kind == "ivon":
        return IVON(net.parameters(), lr=0.01, ess=100.0, seed=0)
    return VAdamW(net.parameters(), lr=0.01, n=100, batch_size=10, seed=0, **options)


def take_steps(net: nn.Module, optimizer: IVON | VAdamW, steps: int, schedule: Any = None) -> None:
    for _ in range(steps):
        with optimizer.sampled_params(train=True):
            optimizer.zero_grad()
            net(torch.ones(2, 1)).square().mean().backward()
        optimizer.step()
        if schedule is not None:
            schedule.step()


def extract(net: nn.Module, optimizer: IVON | VAdamW) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        DiagGaussian.from_optimizer(net, optimizer)
    return [str(each.message) for each in caught]


@pytest.mark.parametrize("kind", ["ivon", "vadamw"])
def test_a_constant_rate_is_warned_of_once_with_the_cure_and_the_users_line(kind: str) -> None:
    net = nn.Linear(1, 1)
    take_steps(net, optimizer := optimizer_of(kind, net), STEPS)
    with pytest.warns(UserWarning, match=WORDS) as caught:
        DiagGaussian.from_optimizer(net, optimizer)
    assert caught[0].filename == __file__
    assert extract(net, optimizer) == []


@pytest.mark.parametrize("kind", ["ivon", "vadamw"])
@pytest.mark.parametrize(
    "make",
    [
        lambda optimizer: warmup_cosine(optimizer, STEPS),
        lambda optimizer: StepLR(optimizer, 1_000),  # falls later, once an epoch say
        lambda optimizer: LambdaLR(optimizer, lambda step: 1.0),  # a framework's constant one: its own business
    ],
)
def test_no_false_alarm_where_something_schedules(kind: str, make: Any) -> None:
    net = nn.Linear(1, 1)
    optimizer = optimizer_of(kind, net)
    take_steps(net, optimizer, STEPS, make(optimizer))
    assert extract(net, optimizer) == []


@pytest.mark.parametrize("kind", ["ivon", "vadamw"])
def test_a_short_run_and_a_rate_that_was_set_by_hand_are_left_alone(kind: str) -> None:
    net = nn.Linear(1, 1)
    optimizer = optimizer_of(kind, net)
    take_steps(net, optimizer, 50)
    assert extract(net, optimizer) == []
    take_steps(net, optimizer, STEPS)
    optimizer.param_groups[0]["lr"] = 0.001
    take_steps(net, optimizer, 1)
    assert extract(net, optimizer) == []


def test_a_run_of_known_length_is_judged_at_its_end() -> None:
    net = nn.Linear(1, 1)
    optimizer = optimizer_of("vadamw", net, steps=STEPS)
    schedule = LambdaLR(optimizer, lambda step: 1.0 if step < 20 else 0.7)
    take_steps(net, optimizer, STEPS - 1, schedule)
    assert extract(net, optimizer) == []
    take_steps(net, optimizer, 1, schedule)
    (found,) = extract(net, optimizer)
    assert "The learning rate is 0.007 after 120 steps, 70% of its peak" in found


@pytest.mark.parametrize("kind", ["ivon", "vadamw"])
def test_diagnostics_know_the_rates(kind: str) -> None:
    net = nn.Linear(1, 1)
    optimizer = optimizer_of(kind, net)
    for rate in (0.01, 0.03, 0.002, 0.005, 0.005):
        optimizer.param_groups[0]["lr"] = rate
        take_steps(net, optimizer, 1)
    (found,) = optimizer.diagnostics()
    assert (found.lr_start, found.lr_lowest, found.lr_peak, found.lr) == (0.01, 0.002, 0.03, 0.005)
    assert (found.lr_constant_for, found.step) == (2, 5)
    assert "no_schedule" not in [each.code for each in found.findings]
    take_steps(net, optimizer := optimizer_of(kind, net), STEPS)
    assert "no_schedule" in [each.code for each in optimizer.diagnostics()[0].findings]
