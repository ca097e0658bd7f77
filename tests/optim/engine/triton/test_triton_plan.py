"""A plan of the Triton engine, in the interpreter: samples in every dtype, steps, and steps that the device drops."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.optim.engine.problems import hyper, member, needs_triton, new_group, plan_of
from varlearn.core.noise import derive_key, fold_in, normal_
from varlearn.core.update import RULE
from varlearn.optim.engine.plan import Guard, Member, Noise, StepSettings, is_guarded

pytestmark = needs_triton

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
NOISE = Noise(derive_key(0, 1), 30.0, 0.5)


def triton_plan(members: list[Member]) -> Any:
    plan = plan_of("triton", members)
    assert is_guarded(plan)
    return plan


def of_dtype(dtype: torch.dtype, memory: str = "fast") -> tuple[list[Member], dict[int, Noise]]:
    """A parameter of more than a block, a misaligned one, and one in another memory order."""
    torch.manual_seed(4)
    group = new_group(memory=memory)
    tensors = [torch.randn(1030).to(dtype), torch.randn(9).to(dtype)[1:], torch.randn(3, 4).to(dtype).t()]
    return [member(tensor, 3 * k, group) for k, tensor in enumerate(tensors)], {id(group): NOISE}


# The sample


@pytest.mark.parametrize("memory", ["fast", "lean"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_sample_goes_in_and_comes_out(dtype: torch.dtype, memory: str) -> None:
    members, noises = of_dtype(dtype, memory)
    twins, others = of_dtype(dtype, memory)
    before = [each.param.clone() for each in members]
    plan = triton_plan(members)
    plan.draw(noises)
    plan_of("loop", twins).draw(others)
    for each, twin in zip(members, twins, strict=True):
        # In low precision a last bit of the noise may round to the next number.
        torch.testing.assert_close(each.param, twin.param, rtol=1.01 * torch.finfo(dtype).eps, atol=2e-6)
    for _ in range(2):  # a second time it does nothing
        plan.restore()
        is_exact = memory == "fast" or dtype != torch.float32
        for each, old in zip(members, before, strict=True):
            torch.testing.assert_close(each.param, old, rtol=0.0, atol=0.0 if is_exact else 1e-6)


def test_what_is_written_into_a_low_precision_weight_becomes_its_mean() -> None:
    members, noises = of_dtype(torch.bfloat16)
    fine = [each.state["mean"].add_(1e-4 * each.state["mean"]) for each in members]  # finer than bfloat16 can show
    kept = [mean.clone() for mean in fine]
    with torch.no_grad():
        members[0].param[:5] = 7.0
    plan = triton_plan(members)
    plan.draw(noises)
    plan.restore()
    assert members[0].state["mean"][:5].tolist() == [7.0] * 5
    assert torch.equal(members[0].state["mean"][5:], kept[0][5:])
    assert torch.equal(members[1].state["mean"], kept[1])


@pytest.mark.parametrize("memory", ["fast", "lean"])
@pytest.mark.parametrize("during", ["draw", "restore"])
@pytest.mark.parametrize("launched", [0, 1, 2])
def test_an_interrupt_between_launches_does_not_lose_the_mean(
    launched: int, during: str, memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three dtypes make three launches; the interrupt comes after none, one or two of them."""
    from varlearn.optim.engine.triton.launching import Launcher

    group = new_group(memory=memory)
    members = [member(torch.ones(20, dtype=dtype), k, group) for k, dtype in enumerate(DTYPES)]
    plan, run, count = triton_plan(members), Launcher.run, 0

    def interrupted(self: Launcher, *args: Any, **kwargs: Any) -> None:
        nonlocal count
        if count == launched:
            raise KeyboardInterrupt
        count += 1
        run(self, *args, **kwargs)

    if during == "restore":
        plan.draw({id(group): NOISE})
    with monkeypatch.context() as patch:
        patch.setattr(Launcher, "run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            plan.draw({id(group): NOISE}) if during == "draw" else plan.restore()
    plan.restore()
    for each in members:
        torch.testing.assert_close(each.param.float(), torch.ones(20), rtol=0.0, atol=1e-6)


@pytest.mark.parametrize("memory", ["fast", "lean"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_mean_comes_back_into_memory_that_was_replaced(dtype: torch.dtype, memory: str) -> None:
    members, noises = of_dtype(dtype, memory)
    before = [each.param.clone() for each in members]
    plan = triton_plan(members)
    plan.draw(noises)
    members[0].param.data = members[0].param.data.clone()
    assert not plan.holds()
    plan.restore()
    for each, old in zip(members, before, strict=True):
        torch.testing.assert_close(each.param, old, rtol=0.0, atol=1e-6 if memory == "lean" else 0.0)


def test_copies_of_the_mean_are_used_by_the_next_plan() -> None:
    members, _ = of_dtype(torch.float32)
    plan = triton_plan(members)
    from varlearn.optim.engine.triton.triton_plan import TritonPlan

    assert TritonPlan(members, RULE, plan)._copies is plan._copies
    assert TritonPlan(members[:1], RULE, plan)._copies is not plan._copies


# The step


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("grad_dtype", DTYPES, ids=str)
def test_every_dtype_of_weights_and_gradients(dtype: torch.dtype, grad_dtype: torch.dtype) -> None:
    outcomes = []
    for engine in ("triton", "loop"):
        members, noises = of_dtype(dtype)
        plan = plan_of(engine, members)
        its = StepSettings(hyper(ess=30.0, weight_decay=0.5), "reparam", NOISE, 0.1, 2.0, 0.5)
        for _ in range(2):
            plan.draw(noises)
            # The same for both: a sample of low precision may be rounded to the next number.
            rows = [(k, torch.randn_like(each.param, dtype=grad_dtype), None) for k, each in enumerate(members)]
            plan.restore()
            plan.step(rows, [its] * 3)
        outcomes.append([tensor for each in members for tensor in (each.param, *list(each.state.values())[1:])])
    for ours, plain in zip(*outcomes, strict=True):
        assert ours.dtype == plain.dtype
        tolerance = max(5e-6, 1.01 * torch.finfo(ours.dtype).eps)
        torch.testing.assert_close(ours, plain, rtol=tolerance, atol=5e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("memory", ["fast", "lean"])
@pytest.mark.parametrize("stepped", [[0, 1, 2], [1], []], ids=str)
def test_a_step_while_a_sample_is_in_is_one_after_it(stepped: list[int], memory: str, dtype: torch.dtype) -> None:
    """Bit for bit; parameters without a row get their mean back."""
    outcomes = []
    for restore_first in (True, False):
        members, noises = of_dtype(dtype, memory)
        plan = triton_plan(members)
        plan.draw(noises)
        if restore_first:
            plan.restore()
        its = StepSettings(hyper(ess=50.0, weight_decay=0.01), "reparam", NOISE, 0.5, 2.0, 0.5)
        rows = [(k, torch.ones_like(members[k].param), None) for k in stepped]
        plan.step(rows, [its] * len(stepped))
        assert not plan.is_in
        plan.restore()
        outcomes.append([tensor for each in members for tensor in (each.param, *list(each.state.values())[1:])])
    assert all(map(torch.equal, *outcomes))


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("which", "where"), [(0, 0), (0, 1029), (1, 7)])
def test_all_finite_finds_one_bad_number_anywhere(which: int, where: int, dtype: torch.dtype, bad: float) -> None:
    plan = triton_plan(of_dtype(torch.float32)[0])
    limit = torch.finfo(dtype).max
    numbers: list[tuple[float, float | None]] = [(limit, None), (1.0, 1.0)]
    for index, (of_grad, of_hhat) in enumerate(numbers):
        grads = [torch.full_like(each.param, of_grad, dtype=dtype) for each in plan.members]
        hhats = [None if of_hhat is None else torch.full_like(each.param, of_hhat) for each in plan.members]
        assert plan.all_finite(list(zip(range(3), grads, hhats, strict=True)))
        (grads if index == 0 else hhats)[which][where] = bad  # type: ignore[index]
        assert not plan.all_finite(list(zip(range(3), grads, hhats, strict=True)))
    assert plan.all_finite([])


# Steps that the device drops


def guarded_run(bad: list[bool], scale: float, overflow: list[bool]) -> tuple[Any, list[Tensor]]:
    """Steps of one parameter, and of another that joins at every second step."""
    group = new_group()
    members = [member(torch.linspace(-1.0, 1.0, 1100), 0, group), member(torch.ones(5), 1, group)]
    plan, taken = triton_plan(members), 0
    for t, (is_bad, is_over) in enumerate(zip(bad, overflow, strict=True)):
        plan.draw({id(group): NOISE})
        grads = [each.param * scale for each in members]
        if is_bad:
            grads[0][1050] = math.nan
        rows = [(k, grads[k], None) for k in range(2 if t % 2 else 1)]
        settings = []
        for k, _, _ in rows:
            members[k].state["step"] += 1
            debias = 1.0 - 0.9 ** members[k].state["step"]  # as the host believes
            settings.append(StepSettings(hyper(ess=30.0, debias=debias), "reparam", NOISE))
        plan.step(rows, settings, guard=Guard(torch.tensor([scale]), torch.tensor([float(is_over)])))
        taken += not (is_bad or is_over)
    return plan, [tensor for each in members for tensor in (each.param, each.state["momentum"], each.state["hess"])]


@pytest.mark.parametrize("dropped_by", ["a NaN", "GradScaler"])
def test_a_dropped_step_is_as_if_it_had_never_been(dropped_by: str) -> None:
    """Also for the debiasing of later steps, of whose number only the device knows."""
    drops = [True, True, False, False, True, True, False, False]
    nowhere = [False] * len(drops)
    plan, ours = guarded_run(*((drops, 8.0, nowhere) if dropped_by == "a NaN" else (nowhere, 8.0, drops)))
    kept = [t for t, is_dropped in enumerate(drops) if not is_dropped]
    clean, plain = guarded_run([False] * len(kept), 1.0, [False] * len(kept))
    for new, old in zip(ours, plain, strict=True):
        torch.testing.assert_close(new, old, rtol=1e-6, atol=1e-7)
    assert [each.state["step"] for each in plan.members] == [8, 4]
    assert plan.settle() == 4
    assert [each.state["step"] for each in plan.members] == [4, 2]
    assert plan.settle() == 0
    assert clean.settle() == 0


def test_without_a_guard_the_host_has_looked() -> None:
    members, _ = of_dtype(torch.float32)
    plan = triton_plan(members)
    its = StepSettings(hyper(), "reparam", NOISE)
    plan.step([(1, torch.full((8,), math.nan), None)], [its])
    assert bool(members[1].param.isnan().all())
    assert plan.settle() == 0


# Gradients as backward leaves them


@pytest.mark.parametrize(
    ("grad", "converted"),
    [
        (torch.ones(4, 6), 0),
        (torch.ones(4, 6).bfloat16(), 0),
        (torch.ones(4, 6).half(), 0),
        (torch.ones(4, 6, dtype=torch.float64), 1),
        (torch.ones(6, 4).t(), 1),
        (torch.ones(4, 12)[:, ::2], 1),
        (torch._efficientzerotensor(4, 6), 1),
        (torch.ones(1).expand(4, 6), 1),
        (torch._neg_view(torch.ones(4, 6)), 1),
    ],
    ids=lambda value: f"{value.dtype}-{value.stride()}" if isinstance(value, Tensor) else "",
)
def test_gradients_of_another_kind_are_copied_and_counted(grad: Tensor, converted: int) -> None:
    each = member(torch.zeros(4, 6))
    plan = triton_plan([each])
    its = StepSettings(hyper(beta1=0.0), "reparam", Noise(0, 1.0, 0.1))
    rows = [(0, grad, None)]
    assert plan.all_finite(rows)
    plan.step(rows, [its])
    assert plan.converted == converted
    torch.testing.assert_close(each.state["momentum"], grad.detach().float().resolve_neg() + torch.zeros(4, 6))


def test_a_part_of_a_sharded_parameter_has_its_part_of_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """`place` says where a part begins; the ranks are tested with the engines that run on CPUs."""
    from varlearn.core.noise import advanced
    from varlearn.optim.engine.triton import triton_plan as module

    monkeypatch.setattr(module, "place", lambda param, key: (advanced(key, 300), None))
    each = member(nn.Parameter(torch.zeros(50)), index=4, hess=1.0)
    triton_plan([each]).draw({id(each.group): Noise(9, 1.0, 0.0)})
    expected = normal_(torch.empty(650), fold_in(9, 4))[600:]
    torch.testing.assert_close(each.param.detach(), expected, rtol=0.0, atol=2e-6)


def test_blocks_of_few_lists_of_parameters_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a mixture of experts other parameters have a gradient at each step. A list that is used often stays."""
    from varlearn.optim.engine.triton import capturing, launching

    launcher = launching.Launcher([5, 1025, 2049], torch.device("cpu"))
    everything = launcher._blocks_of((0, 1, 2))
    assert everything.tolist() == [[0, 0], [1, 0], [1, 1], [2, 0], [2, 1], [2, 2]]
    monkeypatch.setattr(capturing, "is_capturing", lambda device: True)
    assert launcher._blocks_of((0, 1, 2)) is everything
    monkeypatch.undo()
    for k in range(1000):
        launcher._blocks_of((0, *[2] * k))
        if k < 500:
            assert launcher._blocks_of((0, 1, 2)) is everything
    assert len(launcher._blocks) == 32
    assert (0, 1, 2) not in launcher._blocks
    assert launcher._captured == [everything]  # a replay reads it
