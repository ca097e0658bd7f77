"""Some runs of the campaign, and that it notices what it looks for."""

import logging
from random import Random

import pytest
import torch

from soak.faulty_training import ENGINES, OPTIMIZERS, VALUES, Fault, Training, random_plan
from soak.gradients import run
from soak.part import chance
from varlearn.optim import stepping


@pytest.mark.parametrize("number", range(12))
def test_bad_gradients_change_nothing_later(number: int) -> None:
    wrong, _ = run(random_plan(chance(100, number), ranks=1))
    assert not wrong


def test_plans_visit_everything() -> None:
    plans = [random_plan(chance(0, number), ranks=3) for number in range(300)]
    assert {plan.optimizer for plan in plans} == set(OPTIMIZERS)
    assert {plan.engine for plan in plans} == set(ENGINES)
    assert {fault.value for plan in plans for fault in plan.faults} == set(VALUES)
    assert {fault.rank for plan in plans for fault in plan.faults} == {0, 1, 2}
    assert all(len({fault[:4] for fault in plan.faults}) == len(plan.faults) for plan in plans)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_step_that_is_taken_in_spite_of_nan_is_noticed(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stepping, "_all_finite", lambda *_: True)
    monkeypatch.setattr(logging.getLogger("varlearn"), "disabled", True)
    plan = random_plan(Random(0), ranks=1)._replace(
        engine=engine, samples=1, micro=1, faults=(Fault(1, 0, 0, 0, 0, 0, "nan"),)
    )
    wrong, _ = run(plan)
    assert wrong == "step 1 is not the oracle's"


def test_a_huge_gradient_arrives() -> None:
    plan = random_plan(Random(0), ranks=1)._replace(
        dtype="float32", way="blocks", samples=1, micro=1, faults=(Fault(0, 0, 0, 0, 0, 0, "-huge"),)
    )
    training = Training(plan)
    training.step(0)
    grad = training.model.scale.grad
    assert grad is not None
    assert float(grad) == pytest.approx(-1e30)
    assert torch.isfinite(grad)
