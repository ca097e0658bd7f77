"""Plans are kept while nothing changes, and made anew when something does; training is the loop's throughout."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tests.optim.engine.problems import Twins
from varlearn import IVON


def plans(opt: IVON) -> list[Any]:
    """The plans of the last sample."""
    return list(opt._members._plans)


def clone(params: list[nn.Parameter]) -> None:
    params[0].data = params[0].data.clone()


def transpose(params: list[nn.Parameter]) -> None:
    params[2].data = params[2].data.t().contiguous().t()


def cast(params: list[nn.Parameter]) -> None:
    params[0].data = params[0].data.double()


def freeze(params: list[nn.Parameter]) -> None:
    params[1].requires_grad_(not params[1].requires_grad)


def forget_gradient(params: list[nn.Parameter]) -> None:
    params[1].grad = None


def strange_gradient(params: list[nn.Parameter]) -> None:
    assert params[2].grad is not None
    params[2].grad = params[2].grad.t().contiguous().t()


# Kept or made anew


def test_members_and_plans_are_kept_while_nothing_changes(engine: str) -> None:
    twins = Twins(engine)
    twins.step()
    opt = twins.opts[0]
    first, members = plans(opt), opt._members._members
    assert [plan.engine for plan in first] == [engine]
    for _ in range(2):
        twins.step()
        with opt.sampled_params():
            pass
        for each in twins.opts:
            each.param_groups[0]["lr"] *= 0.5
        assert all(new is old for new, old in zip(plans(opt), first, strict=True))
        assert opt._members._members is members


def another_state(opt: IVON) -> None:
    param = opt.param_groups[0]["params"][1]
    opt.state[param] = {**opt.state[param], "hess": torch.full((7,), 2.0)}


def a_loaded_state(opt: IVON) -> None:
    opt.load_state_dict(opt.state_dict())


def another_memory(opt: IVON) -> None:
    opt.param_groups[0]["memory"] = "lean"


def another_engine(opt: IVON) -> None:
    opt.param_groups[0].update(foreach=False, fused=False)


def another_group(opt: IVON) -> None:
    opt.add_param_group({"params": [nn.Parameter(torch.ones(9))]})


def on_params(change: Callable[[list[nn.Parameter]], None]) -> Callable[[IVON], None]:
    def changed(opt: IVON) -> None:
        change(opt.param_groups[0]["params"])

    changed.__name__ = change.__name__
    return changed


@pytest.mark.parametrize(
    "change",
    [*map(on_params, (transpose, cast, freeze)), another_state, a_loaded_state, another_memory, another_engine,
     another_group],
    ids=lambda change: change.__name__,
)  # fmt: skip
def test_plans_are_made_anew_when_something_changes(change: Callable[[IVON], None], engine: str) -> None:
    twins = Twins(engine)
    twins.step()
    opt = twins.opts[0]
    before = plans(opt)
    change(opt)
    with opt.sampled_params():
        pass
    assert not any(new is old for new in plans(opt) for old in before)


def test_a_parameter_that_moves_in_memory_gets_a_new_native_plan_and_keeps_the_others(engine: str) -> None:
    twins = Twins(engine)
    twins.step()
    opt = twins.opts[0]
    before = plans(opt)
    clone(twins.models[0])
    with opt.sampled_params():
        pass
    assert (plans(opt)[0] is before[0]) is (engine != "native")


def test_indices_count_all_parameters_of_all_groups() -> None:
    params = [nn.Parameter(torch.ones(2), requires_grad=k % 2 == 0) for k in range(5)]
    opt = IVON([{"params": params[:2]}, {"params": params[2:]}], lr=0.1, ess=1.0)
    with opt.sampled_params():
        assert [each.index for plan in plans(opt) for each in plan.members] == [0, 2, 4]


# Training goes on as the loop's


@pytest.mark.parametrize("memory", ["fast", "lean"])
@pytest.mark.parametrize("change", [clone, transpose, freeze])
def test_parameters_change_between_steps(engine: str, change: Any, memory: str) -> None:
    twins = Twins(engine, memory=memory)
    for _ in range(3):
        twins.step()
        for params in twins.models:
            change(params)
    twins.step()


@pytest.mark.parametrize("memory", ["fast", "lean"])
@pytest.mark.parametrize("change", [clone, forget_gradient, strange_gradient])
def test_parameters_change_between_a_sample_and_its_step(engine: str, change: Any, memory: str) -> None:
    twins = Twins(engine, memory=memory)
    for _ in range(3):
        twins.step(between=change)


@pytest.mark.parametrize("way", ["blocks", "modes", "closure"])
@pytest.mark.parametrize("memory", ["fast", "lean"])
@pytest.mark.parametrize("change", [clone, transpose])
def test_a_parameter_gets_other_memory_while_a_sample_is_in_it(engine: str, change: Any, memory: str, way: str) -> None:
    twins = Twins(engine, way=way, memory=memory)
    for _ in range(3):
        twins.step(inside=change)


def test_a_parameter_is_cast_while_a_sample_is_in_it_and_back(engine: str) -> None:
    twins = Twins(engine)
    twins.step()
    for params, opt in twins.each():
        mean = params[0].detach().clone()
        with opt.sampled_params():
            params[0].data = params[0].data.bfloat16()
        assert torch.equal(params[0], mean.bfloat16())
        params[0].data = params[0].data.float()
    twins.step()


def test_a_sample_is_shown_again_after_the_model_has_moved(engine: str) -> None:
    twins = Twins(engine)
    twins.step()
    for params, opt in twins.each():
        opt.zero_grad()
        opt.train()
        opt.eval()
        clone(params)
        transpose(params)
        opt.train()
        torch.stack([(p * p).sum() for p in params]).sum().backward()
        opt.step()
        opt.zero_grad()
    twins.compare()
    twins.step()


def test_groups_and_engines_change_between_steps(engine: str) -> None:
    twins = Twins(engine)
    twins.step()
    for params, opt in twins.each():
        params.append(nn.Parameter(torch.ones(9)))
        opt.add_param_group({"params": params[-1:], "lr": 0.3, "ess": 7.0})
    twins.step()
    group = twins.opts[0].param_groups[0]
    first = {name: group[name] for name in ("memory", "fused", "foreach")}
    for change in ({"memory": "lean"}, {"fused": False}, {"fused": None, "foreach": True, "memory": "fast"}, first):
        group |= change
        twins.step()


def test_a_state_that_is_loaded_or_replaced_is_used(engine: str) -> None:
    twins = Twins(engine)
    twins.step()
    for params, opt in twins.each():
        opt.load_state_dict(opt.state_dict())
        opt.state[params[1]] = {name: value for name, value in opt.state[params[1]].items()}
        opt.state[params[1]]["hess"] = torch.full((7,), 2.0)
        del opt.state[params[2]]
    twins.step()
    assert twins.opts[0].state[twins.models[0][2]]["step"] == 1


def test_evaluation_between_a_sample_and_its_step_changes_nothing(engine: str) -> None:
    twins = Twins(engine)

    def evaluate(params: list[nn.Parameter]) -> None:
        with twins.opt(params).sampled_params():
            pass

    for _ in range(3):
        twins.step(between=evaluate)


def test_a_second_sample_before_the_step_is_averaged(engine: str) -> None:
    twins = Twins(engine)

    def again(params: list[nn.Parameter]) -> None:
        opt = twins.opt(params)
        with opt.sampled_params(train=True):
            opt.zero_grad()
            torch.stack([(p * p).sum() for p in params]).sum().backward()

    for _ in range(3):
        twins.step(between=again)


def test_a_parameter_that_is_frozen_between_two_samples_of_a_step(engine: str) -> None:
    twins = Twins(engine)

    def again(params: list[nn.Parameter]) -> None:
        freeze(params)
        opt = twins.opt(params)
        with opt.sampled_params(train=True):
            opt.zero_grad()
            torch.stack([(p * p).sum() for p in params if p.requires_grad]).sum().backward()

    for _ in range(3):
        twins.step(between=again)


@pytest.mark.parametrize("way", ["blocks", "modes", "closure"])
def test_a_parameter_without_a_gradient_falls_behind_and_is_taken_along_again(engine: str, way: str) -> None:
    twins = Twins(engine, way=way)
    twins.step(inside=forget_gradient)
    for _ in range(3):
        twins.step()
    steps = [twins.opts[0].state[param]["step"] for param in twins.models[0]]
    assert steps == [4, 3, *[4] * 7]


@pytest.mark.parametrize("before", ["reparam", "squared_gradient"])
def test_the_estimate_of_h_is_the_one_that_is_asked_for_at_the_step(engine: str, before: str) -> None:
    twins = Twins(engine, hess_approx=before)
    after = ({"reparam", "squared_gradient"} - {before}).pop()

    def change(params: list[nn.Parameter]) -> None:
        twins.opt(params).param_groups[0]["hess_approx"] = after

    twins.step()
    twins.step(between=change)
    twins.step()


def test_counts_are_those_of_each_group(engine: str) -> None:
    params = [nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(2, 6)[:, ::2])]
    wishes = {"native": {}, "foreach": {"fused": False}}[engine]
    opt = IVON([{"params": params[:1], "foreach": False}, {"params": params[1:], **wishes}], lr=0.1, ess=1.0)
    with opt.sampled_params(train=True):
        torch.stack([p.sum() for p in params]).sum().backward()
    opt.step()
    first, second = opt.diagnostics()
    assert (first.by_native, first.by_foreach, first.by_loop) == (0, 0, 1)
    assert (getattr(second, f"by_{engine}"), second.by_loop) == (1, 1)
