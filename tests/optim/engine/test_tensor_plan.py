"""Plans of tensor operations: the mean is kept, and put back wherever an interrupt falls."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.optim.engine.problems import hyper, member, new_group, plan_of
from varlearn.core.update import RULE
from varlearn.optim.engine import foreach, loop
from varlearn.optim.engine.plan import Noise, StepSettings
from varlearn.optim.engine.tensor_plan import TensorPlan

SHAPES = [(3, 5), (7,), (), (0, 4), (12, 9), (1,)]
ENGINES = ["loop", "foreach", "foreach, cut"]


@pytest.fixture(params=ENGINES)
def tensor_engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "foreach, cut":
        monkeypatch.setattr(foreach, "_CPU_CHUNK", 4)
    return request.param.split(",")[0]


def planned(engine: str, dtype: torch.dtype = torch.float32, memory: str = "fast") -> tuple[TensorPlan, list[Tensor]]:
    group = new_group(memory=memory)
    params = [torch.randn(shape).to(dtype) for shape in SHAPES]
    plan = plan_of(engine, [member(param, k, group) for k, param in enumerate(params)])
    assert isinstance(plan, TensorPlan)
    return plan, params


def noises(plan: TensorPlan, key: int = 1) -> dict[int, Noise]:
    return {id(plan.members[0].group): Noise(key, 4.0, 0.5)}


DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("memory", ["fast", "lean"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_sample_goes_in_and_comes_out(dtype: torch.dtype, memory: str, tensor_engine: str) -> None:
    plan, params = planned(tensor_engine, dtype, memory)
    mean = [param.clone() for param in params]
    for key in range(3):
        plan.draw(noises(plan, key))
        assert not any(torch.equal(new, old) for new, old in zip(params, mean, strict=True) if old.numel())
        for _ in range(2):  # a second time it does nothing
            plan.restore()
            exact = memory == "fast" or dtype in (torch.bfloat16, torch.float16)
            ulps = 0.0 if exact else 10 * torch.finfo(dtype).eps
            for new, old in zip(params, mean, strict=True):
                torch.testing.assert_close(new, old, rtol=ulps, atol=ulps)


@pytest.mark.parametrize("memory", ["fast", "lean"])
@pytest.mark.parametrize("during", ["draw", "restore"])
@pytest.mark.parametrize("after_the_write", [False, True])
def test_an_interrupt_in_any_chunk_does_not_lose_the_mean(
    after_the_write: bool, during: str, memory: str, tensor_engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, params = planned(tensor_engine, memory=memory)
    mean = [param.clone() for param in params]
    write, count = TensorPlan._write_sample, len(plan._chunks)
    for last in range(count):
        calls = itertools.count()

        def interrupted(self: TensorPlan, *args: Any, calls: Iterator[int] = calls, last: int = last) -> None:
            number = next(calls)
            if number != last or after_the_write:
                write(self, *args)
            if number == last:
                raise KeyboardInterrupt

        if during == "restore":
            plan.draw(noises(plan, last))
        with monkeypatch.context() as patch:
            patch.setattr(TensorPlan, "_write_sample", interrupted)
            if during == "draw" or memory == "lean":
                with pytest.raises(KeyboardInterrupt):
                    plan.draw(noises(plan, last)) if during == "draw" else plan.restore()
        plan.restore()
        tolerance = 0.0 if memory == "fast" else 1e-5
        for new, old in zip(params, mean, strict=True):
            torch.testing.assert_close(new, old, rtol=tolerance, atol=tolerance)


def test_the_noise_of_another_plan_s_sample_can_be_subtracted() -> None:
    plan, params = planned("loop", memory="lean")
    mean = [param.clone() for param in params]
    plan.draw(noises(plan))
    loop.plan(plan.members, RULE).subtract(noises(plan))
    for new, old in zip(params, mean, strict=True):
        torch.testing.assert_close(new, old, rtol=1e-6, atol=1e-6)


def test_a_sample_that_is_still_in_is_taken_out_by_the_step(tensor_engine: str) -> None:
    outcomes = []
    for restore_first in (True, False):
        torch.manual_seed(0)
        plan, params = planned(tensor_engine)
        plan.draw(noises(plan))
        if restore_first:
            plan.restore()
        rows = [(k, torch.ones_like(param), None) for k, param in enumerate(params) if k != 1]
        its = StepSettings(hyper(), "reparam", noises(plan)[id(plan.members[0].group)])
        plan.step(rows, [its] * len(rows))
        outcomes.append([*params, *(each.state["hess"] for each in plan.members)])
    assert all(map(torch.equal, *outcomes))


def test_copies_of_the_mean_are_used_by_the_next_plan() -> None:
    plan, params = planned("foreach")
    plan.draw(noises(plan))
    plan.restore()
    again = foreach.plan(plan.members, RULE, plan)
    again.draw(noises(plan))
    assert all(again._copies[id(param)] is plan._copies[id(param)] for param in params)
    assert foreach.plan(plan.members[:1], RULE, plan)._copies.keys() == {id(params[0])}


@pytest.mark.parametrize(
    ("shape", "stride", "converted"),
    [((8, 1, 1), (1, 8, 8), 0), ((4, 6), (6, 1), 0), ((4, 6), (1, 4), 1), ((4, 6), (12, 2), 1)],
)
def test_gradients_in_another_memory_order_are_copied_and_counted(
    shape: tuple[int, ...], stride: tuple[int, ...], converted: int, tensor_engine: str
) -> None:
    param = torch.zeros(shape)
    grad = torch.randn(64).as_strided(shape, stride)
    plan = plan_of(tensor_engine, [member(param)])
    its = StepSettings(hyper(beta1=0.0), "reparam", Noise(0, 1.0, 0.1))
    plan.step([(0, grad, None)], [its])
    assert plan.converted == converted
    assert torch.equal(plan.members[0].state["momentum"], grad)
    assert (plan._in_order(0, grad) is grad) is (converted == 0)  # type: ignore[attr-defined]
    plan.step([(0, torch.ones(shape), None)], [its])
    assert plan.converted == 0  # of the last step


def test_parameters_that_cannot_be_computed_together_are_computed_one_by_one() -> None:
    """One at another step, one with hhat, one without a gradient, one with a gradient of another dtype."""
    outcomes = []
    for engine in ("foreach", "loop"):
        torch.manual_seed(0)
        plan, params = planned(engine)
        noise = noises(plan)[id(plan.members[0].group)]
        late, early = (StepSettings(hyper(debias=debias), "reparam", noise) for debias in (0.5, 0.1))
        grads = [torch.randn_like(param) for param in params]
        rows = [(0, grads[0], None), (1, grads[1], grads[1].exp()), (2, grads[2].double(), None), (4, grads[4], None)]
        plan.step(rows, [late, late, late, early])
        outcomes.append([*params, *(each.state["hess"] for each in plan.members)])
    for new, old in zip(*outcomes, strict=True):
        torch.testing.assert_close(new, old, rtol=2e-6, atol=2e-6)


def cast(plan: TensorPlan) -> None:
    plan.members[0].param.data = plan.members[0].param.data.double()


def transposed(plan: TensorPlan) -> None:
    plan.members[4].param.data = plan.members[4].param.data.t().contiguous().t()


def shrunk(plan: TensorPlan) -> None:
    plan.members[0].param.data = plan.members[0].param.data[:2]


def finer_mean(plan: TensorPlan) -> None:
    plan.members[0].state["mean"] = plan.members[0].param.clone()


def other_state(plan: TensorPlan) -> None:
    plan.members[0].state["hess"] = plan.members[0].state["hess"].double()


def other_memory(plan: TensorPlan) -> None:
    plan.members[0].group["memory"] = "lean"


def other_engine(plan: TensorPlan) -> None:
    plan.members[0].group["fused"] = True


@pytest.mark.parametrize("change", [cast, transposed, shrunk, finer_mean, other_state, other_memory, other_engine])
def test_a_plan_holds_until_a_parameter_is_of_another_kind(change: Any, tensor_engine: str) -> None:
    plan, params = planned(tensor_engine)
    params[0].data = params[0].data.clone()
    assert plan.holds()  # tensors are looked up at each use: another address does not matter
    change(plan)
    assert not plan.holds()
