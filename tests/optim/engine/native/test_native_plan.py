"""A plan keeps the addresses of its tensors: it uses them while nothing moves, and never after."""

import math
import signal
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.optim.engine.problems import hyper, member, needs_compiler, new_group, plan_of
from varlearn import IVON
from varlearn.core.noise import derive_key
from varlearn.core.update import RULE
from varlearn.optim.engine.native import native_engine
from varlearn.optim.engine.native.native_plan import NativePlan
from varlearn.optim.engine.plan import Member, Noise, StepSettings

pytestmark = needs_compiler

# Copies stream past the cache from 2^22 elements on.
STREAMING = (1 << 22) + 5
FLOAT32_MAX = torch.finfo(torch.float32).max


def native_plan(members: list[Member]) -> NativePlan:
    plan = plan_of("native", members)
    assert isinstance(plan, NativePlan)
    return plan


# The sample


@pytest.mark.parametrize("size", [100, 5000, STREAMING])
@pytest.mark.parametrize("offset", [0, 1])
def test_a_sample_goes_in_and_comes_out(size: int, offset: int) -> None:
    group = new_group()
    params = [torch.randn(size + offset)[offset:], torch.randn(7)]
    plan = native_plan([member(param, 3 * k, group) for k, param in enumerate(params)])
    before = [param.clone() for param in params]
    twins = [member(param.clone(), 3 * k, group) for k, param in enumerate(params)]
    noises = {id(group): Noise(derive_key(0, 1), 30.0, 0.5)}
    plan_of("loop", twins).draw(noises)
    plan.draw(noises)
    assert plan.is_in.value == 1
    for param, twin in zip(params, twins, strict=True):
        torch.testing.assert_close(param, twin.param, rtol=0, atol=2e-6)
    for _ in range(2):  # a second time it does nothing
        plan.restore()
        assert plan.is_in.value == 0
        assert all(map(torch.equal, params, before))


@pytest.mark.parametrize("memory", ["fast", "lean"])
@pytest.mark.parametrize("delay", [0.0005, 0.002, 0.005, 0.02])
def test_an_interrupt_finds_all_or_nothing(delay: float, memory: str) -> None:
    group = new_group(memory=memory)
    params = [torch.ones(1_000_000) for _ in range(3)]
    plan = native_plan([member(param, k, group) for k, param in enumerate(params)])

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, delay)
        while True:  # the alarm ends it: in the kernel, around it, or in between
            plan.draw({id(group): Noise(1, 1e4, 1.0)})
            plan.restore()
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGALRM, before)
    plan.restore()
    for param in params:
        torch.testing.assert_close(param, torch.ones_like(param), rtol=0.0, atol=1e-4 if memory == "lean" else 0.0)


def test_copies_are_in_one_block_that_is_kept() -> None:
    params = [nn.Parameter(torch.randn(shape)) for shape in ((5, 4), (7,), (3, 3))]
    opt = IVON(params, lr=0.1, ess=100.0, fused=True)

    def copies() -> Tensor:
        with opt.sampled_params():
            (plan,) = opt._weights._plans
            assert isinstance(plan, NativePlan)
            return plan._copies

    first = copies()
    assert first.numel() == 32 + 16 + 16
    assert copies() is first
    params[0].data = params[0].data.clone()
    assert copies() is first


# The step


@pytest.mark.parametrize("size", [5000, STREAMING])
@pytest.mark.parametrize("stepped", [[0, 1, 2], [1], []], ids=str)
def test_a_step_reads_the_means_from_the_copies_while_a_sample_is_in(size: int, stepped: list[int]) -> None:
    """Bit for bit as if the sample had been taken out first; parameters without a row get their mean back."""
    outcomes = []
    for restore_first in (True, False):
        torch.manual_seed(0)
        group = new_group()
        members = [member(torch.randn(count), k, group) for k, count in enumerate((size, 7, 130))]
        grads = [torch.randn_like(each.param) for each in members]
        plan, noise = native_plan(members), Noise(9, 50.0, 0.01)
        plan.draw({id(group): noise})
        if restore_first:
            plan.restore()
        its = StepSettings(hyper(ess=50.0, weight_decay=0.01), "reparam", noise, 0.5, 2.0, 0.5)
        plan.step([(k, grads[k], None) for k in stepped], [its] * len(stepped))
        plan.restore()
        outcomes.append([tensor for each in members for tensor in (each.param, *list(each.state.values())[1:])])
    assert all(map(torch.equal, *outcomes))


@given(size=st.integers(1, 10_000), where=st.floats(0, 1, exclude_max=True), bad=st.sampled_from([math.inf, math.nan]))
def test_all_finite_finds_one_bad_number_anywhere(size: int, where: float, bad: float) -> None:
    grads = [torch.full((3, 5), FLOAT32_MAX), torch.full((size,), -FLOAT32_MAX), torch.zeros(0)]
    plan = native_plan([member(torch.zeros_like(grad), k) for k, grad in enumerate(grads)])
    for hhats in ([None] * 3, [torch.zeros_like(grad) for grad in grads]):
        assert plan.all_finite(list(zip(range(3), grads, hhats, strict=True)))
        for rows in (grads, hhats):
            if rows[1] is not None:
                old, rows[1] = rows[1], rows[1].clone()
                rows[1][int(where * size)] = -bad
                assert not plan.all_finite(list(zip(range(3), grads, hhats, strict=True)))
                rows[1] = old


def test_all_finite_of_nothing_and_of_much() -> None:
    plan = native_plan([member(torch.zeros(100_000), k) for k in range(3)])
    assert plan.all_finite([])
    torch.set_num_threads(2)
    many = [torch.zeros(100_000) for _ in range(3)]
    assert plan.all_finite([(k, grad, None) for k, grad in enumerate(many)])
    many[2][99_999] = math.nan
    assert not plan.all_finite([(k, grad, None) for k, grad in enumerate(many)])


# Gradients as backward leaves them


def turned(shape: tuple[int, ...], stride: tuple[int, ...]) -> Tensor:
    return torch.randn(shape).contiguous().as_strided(shape, stride)


@pytest.mark.parametrize(
    ("param", "grad"),
    [
        (torch.randn(4, 6), torch.randn(4, 6)),
        (torch.randn(8, 1, 1, 1), turned((8, 1, 1, 1), (1, 8, 8, 8))),
        (torch.randn(1, 8, 1, 1), torch.randn(1, 8, 1, 1).to(memory_format=torch.channels_last)),
        (torch.randn(1), turned((1,), (7,))),
        (torch.randn(5, 1), turned((5, 1), (1, 5))),
        (torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),) * 2,
        (torch.randn(0, 3), turned((0, 3), (1, 1))),
    ],
    ids=lambda tensor: f"{tuple(tensor.shape)}-{tensor.stride()}",
)
def test_a_gradient_in_the_same_memory_order_is_read_where_it_is(param: Tensor, grad: Tensor) -> None:
    plan = native_plan([member(param)])
    ((read, _),) = plan._readable.of([(0, grad, None)])
    assert read is grad
    assert plan.converted == 0


@pytest.mark.parametrize(
    "grad",
    [
        torch.ones(4, 6, dtype=torch.float64),
        torch.ones(6, 4).t(),
        torch.ones(4, 12)[:, ::2],
        torch._efficientzerotensor(4, 6),
        torch.ones(1).expand(4, 6),
        torch.full((4, 6), -1j).conj().imag,
        torch._neg_view(torch.ones(4, 6)),
        torch.ones(4, 6).bfloat16(),
    ],
    ids=lambda grad: f"{grad.dtype}-{grad.stride()}",
)
def test_a_gradient_of_another_kind_is_copied_and_counted(grad: Tensor) -> None:
    each = member(torch.zeros(4, 6))
    plan = native_plan([each])
    its = StepSettings(hyper(beta1=0.0), "reparam", Noise(0, 1.0, 0.1))
    rows = [(0, grad, None)]
    assert plan.all_finite(rows)
    plan.step(rows, [its])
    assert plan.converted == 1
    torch.testing.assert_close(each.state["momentum"], grad.detach().float().resolve_neg() + torch.zeros(4, 6))
    plan.step([(0, torch.ones(4, 6), None)], [its])
    assert plan.converted == 0  # of the last step


# Which parameters, and for how long


class Marked(Tensor):
    """A subclass that could mean anything."""


def with_state(param: Tensor, **tensors: Tensor) -> Member:
    each = member(param)
    each.state.update(tensors)
    return each


@pytest.mark.parametrize(
    ("each", "is_supported"),
    [
        (member(torch.zeros(3)), True),
        (member(nn.Parameter(torch.zeros(3))), True),
        (member(torch.zeros(2, 3, 4, 4).to(memory_format=torch.channels_last)), True),
        (member(torch.zeros(0)), True),
        (with_state(torch.zeros(3), prior_mean=torch.zeros(3)), True),
        (with_state(torch.zeros(1, 3, 1, 1), hess=turned((1, 3, 1, 1), (3, 1, 3, 3))), True),
        (member(torch.zeros(3, dtype=torch.float64)), False),
        (member(torch.zeros(3).half()), False),
        (with_state(torch.zeros(3), mean=torch.zeros(3)), False),
        (with_state(torch.zeros(3), hess=torch.zeros(3, dtype=torch.float64)), False),
        (with_state(torch.zeros(3), momentum=torch.zeros(4)), False),
        (with_state(torch.zeros(3), prior_mean=torch.zeros(())), False),
        (with_state(torch.zeros(3), hess=torch.zeros(3, device="meta")), False),
        (with_state(torch.zeros(3, 4).t(), hess=torch.zeros(4, 3)), False),
        (member(torch.zeros(3, 4)[:, ::2]), False),
        (member(torch.zeros(3, device="meta")), False),
        (member(torch.zeros(3).as_subclass(Marked)), False),
        (with_state(torch.zeros(3), hess=torch.zeros(3).as_subclass(Marked)), False),
    ],
)
def test_only_plain_dense_float32_on_the_cpu_is_taken(each: Member, is_supported: bool) -> None:
    assert native_engine.supports(each, RULE) is is_supported


def test_another_rule_is_not_taken() -> None:
    assert not native_engine.supports(member(torch.zeros(3)), RULE._replace(name="mine"))


def swap(tensor: Tensor, data: Tensor) -> None:
    tensor.data = data


CHANGES: dict[str, Callable[[Tensor, dict[str, Any], dict[str, Any]], object]] = {
    "moved": lambda p, state, group: swap(p, p.data.clone()),
    "transposed": lambda p, state, group: swap(p, p.data.view(6, 4).t()),
    "cast": lambda p, state, group: swap(p, p.data.bfloat16()),
    "shrunk": lambda p, state, group: p.resize_(2, 3),
    "emptied": lambda p, state, group: p.untyped_storage().resize_(0),
    "another hess": lambda p, state, group: state.update(hess=state["hess"].clone()),
    "moved hess": lambda p, state, group: swap(state["hess"], state["hess"].data.clone()),
    "half a momentum": lambda p, state, group: swap(state["momentum"], state["momentum"].data[:2]),
    "no momentum": lambda p, state, group: state.pop("momentum"),
    "a prior": lambda p, state, group: state.update(prior_mean=torch.zeros(4, 6)),
    "a finer mean": lambda p, state, group: state.update(mean=torch.zeros(4, 6)),
    "another engine": lambda p, state, group: group.update(fused=False),
    "another foreach": lambda p, state, group: group.update(foreach=True),
    "another memory": lambda p, state, group: group.update(memory="lean"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_plan_holds_until_something_changes(change: str) -> None:
    param = torch.zeros(4, 6)
    each = member(param)
    plan = native_plan([each, member(torch.zeros(3))])
    assert plan.holds()
    CHANGES[change](param, each.state, each.group)
    assert not plan.holds()
