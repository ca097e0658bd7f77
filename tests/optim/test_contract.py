"""What PyTorch users take for granted of an optimizer, for every row of the contract table: descent, noise, groups."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.optim.contract import (
    Contract,
    TinyNet,
    assert_same,
    cases,
    cases_and_faster_paths,
    drawing_rows,
    fresh,
    mse,
    rows,
    rows_and_dtypes,
    rows_and_paths,
    separable_rows,
    snapshot,
    tensor_state,
    train,
    weights,
)

# Descent


@cases
def test_goes_in_the_right_direction(row: Contract, kwargs: dict) -> None:
    model, opt = fresh(row, **kwargs)
    before = mse(model).item()
    train(row, model, opt, [0] * 40)
    after = mse(model).item()
    assert after > before if kwargs.get("maximize") else after < 0.8 * before


@rows_and_dtypes
def test_every_dtype_descends_with_state_of_at_least_single_precision(row: Contract, dtype: torch.dtype) -> None:
    model, opt = fresh(row, dtype)
    before = mse(model).item()
    train(row, model, opt, [0] * 30)
    assert mse(model).item() < 0.8 * before
    assert {param.dtype for param in model.parameters()} == {dtype}
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    assert {value.dtype for value in tensor_state(opt)} == {wide}


@cases
def test_closure_is_run_for_each_sample_and_its_mean_loss_returned(row: Contract, kwargs: dict) -> None:
    model, opt = fresh(row, **kwargs)
    losses: list[float] = []

    def closure() -> Tensor:
        opt.zero_grad()
        loss = mse(model)
        row.in_closure(opt, loss)
        losses.append(loss.item())
        return loss

    returned = opt.step(closure)
    assert len(losses) == row.passes * kwargs.get("mc_samples", 1)
    losses = losses[:: row.passes]
    assert float(returned) == pytest.approx(sum(losses) / len(losses), rel=1e-6)
    assert not returned.requires_grad
    assert all(state["step"] == 1 for state in opt.state.values())


# Determinism


@cases
def test_runs_repeat_and_the_global_generator_is_not_read(row: Contract, kwargs: dict) -> None:
    runs = []
    for noise_before in (0, 5):
        torch.manual_seed(0)
        torch.randn(noise_before)
        model, opt = fresh(row, **kwargs)
        state = torch.get_rng_state()
        train(row, model, opt, range(4))
        assert torch.equal(torch.get_rng_state(), state)
        runs.append(snapshot(opt))
    assert_same(runs[0], runs[1])


@drawing_rows
def test_seeds_differ(row: Contract) -> None:
    model, opt = fresh(row, seed=1)
    other, other_opt = fresh(row, seed=2)
    train(row, model, opt, range(2))
    train(row, other, other_opt, range(2))
    assert not torch.equal(model.first.weight, other.first.weight)


# Groups and parameters


@rows
def test_groups_of_equal_hyperparameters_are_one_group(row: Contract) -> None:
    model, opt = fresh(row)
    split = TinyNet()
    params = list(split.parameters())
    split_opt = row.make([{"params": params[:2]}, {"params": iter(params[2:])}])
    train(row, model, opt, range(4))
    train(row, split, split_opt, range(4))
    assert_same(weights(model), weights(split))


@rows
def test_each_group_has_its_own_hyperparameters(row: Contract) -> None:
    model = TinyNet()
    rest = [*model.second.parameters(), model.scale]
    opt = row.make([{"params": model.first.parameters(), "lr": 0.0}, {"params": rest}])
    before = weights(model.first)
    train(row, model, opt, range(3))
    assert_same(before, weights(model.first))
    assert not torch.equal(model.second.weight, TinyNet().second.weight)
    opt.param_groups[0]["lr"] = 0.1
    train(row, model, opt, range(1))
    assert not torch.equal(before[0], model.first.weight)


@rows
def test_hyperparameters_changed_while_training_count_from_the_next_step(row: Contract) -> None:
    model, opt = fresh(row)
    train(row, model, opt, range(2))
    opt.param_groups[0]["lr"] = 0.0
    before = weights(model)
    train(row, model, opt, range(2, 4))
    assert_same(before, weights(model))


@separable_rows
def test_a_group_added_while_training_joins_and_disturbs_nobody(row: Contract) -> None:
    def run(join: bool) -> tuple[list[Tensor], Any]:
        old, new = (nn.Parameter(torch.full((3,), 1.0)) for _ in range(2))
        opt = row.make([old])

        def loss() -> Tensor:
            return (old**2).sum() + ((new - 1.0) ** 4).sum()  # separable

        for step in range(6):
            if step == 3 and join:
                opt.add_param_group({"params": [new], "lr": 0.5})
            if step < 3 or not join:
                row.step(opt, lambda: (old**2).sum())
            else:
                row.step(opt, loss)
        return [old.detach(), new.detach()], opt

    alone, _ = run(join=False)
    joined, opt = run(join=True)
    assert torch.equal(alone[0], joined[0])
    assert opt.param_groups[1]["lr"] == 0.5
    assert [opt.state[group["params"][0]]["step"] for group in opt.param_groups] == [6, 3]
    copied = copy.deepcopy(opt)
    copied.load_state_dict(opt.state_dict())
    assert_same(snapshot(copied), snapshot(opt))


@rows
def test_a_missing_gradient_skips_the_parameter_whole(row: Contract) -> None:
    used, unused = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
    opt = row.make([unused, used])
    row.step(opt, lambda: (used**2 + unused**2).sum())
    before, used_before = copy.deepcopy(dict(opt.state[unused])), used.detach().clone()
    value = unused.detach().clone()
    for _ in range(3):
        row.step(opt, lambda: (used**2).sum())
    assert torch.equal(unused, value)
    assert_same(dict(opt.state[unused]), before)
    assert opt.state[used]["step"] == 4
    assert not torch.equal(used, used_before)


@rows
def test_a_zero_gradient_is_not_a_missing_one(row: Contract) -> None:
    weight = nn.Parameter(torch.ones(3))
    opt = row.make([weight], weight_decay=0.1)
    row.step(opt, lambda: (weight * 0.0).sum())
    assert opt.state[weight]["step"] == 1
    assert torch.all(weight < 1.0)  # decayed


@rows
def test_step_without_any_gradient_does_nothing(row: Contract) -> None:
    model, opt = fresh(row)
    before = snapshot(opt)
    opt.step()
    assert_same(before, snapshot(opt))
    train(row, model, opt, range(2))
    opt.zero_grad()
    before = snapshot(opt)
    opt.step()
    assert_same(before, snapshot(opt))


@rows
def test_frozen_parameters_are_never_touched(row: Contract) -> None:
    model = TinyNet()
    model.first.requires_grad_(False)
    opt = row.make(model.parameters())
    versions = [param._version for param in model.first.parameters()]
    train(row, model, opt, range(3))
    assert [param._version for param in model.first.parameters()] == versions
    assert not any(param in opt.state for param in model.first.parameters())
    model.first.requires_grad_(True)
    train(row, model, opt, range(2))
    assert [opt.state[param]["step"] for param in model.parameters()] == [5, 2, 2, 5, 5]


@rows
def test_freezing_and_unfreezing_between_two_samples_of_a_step(row: Contract) -> None:
    kept, late = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2), requires_grad=False)
    opt = row.make([kept, late])
    row.backward(opt, lambda: (kept**2 + late**2).sum())
    late.requires_grad_(True)
    row.backward(opt, lambda: (kept**2 + late**2).sum())
    opt.step()
    assert opt.state[kept]["step"] == 1
    assert bool(torch.isfinite(late).all())


@separable_rows
def test_mixed_dtypes_do_not_disturb_each_other(row: Contract) -> None:
    def run(dtype: torch.dtype) -> Tensor:
        single, other = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3, dtype=dtype))
        opt = row.make([other, single])
        for _ in range(5):
            row.step(opt, lambda: (single**2).sum() + (other**2).sum().float())
        assert bool((other < 1.0).all())
        return single.detach()

    alone = run(torch.float32)
    for dtype in row.dtypes:
        assert torch.equal(run(dtype), alone)


@cases_and_faster_paths
def test_paths_agree_with_the_plain_loop(row: Contract, kwargs: dict, path: str) -> None:
    for dtype in (torch.float32, torch.float64):
        runs = []
        for flags in (row.paths["loop"], row.paths[path]):
            model, opt = fresh(row, dtype, **kwargs, **flags)
            train(row, model, opt, range(5))
            runs.append([*weights(model), *tensor_state(opt)])
        for plain, fast in zip(*runs, strict=True):
            tolerance = 1e-5 if dtype == torch.float32 else 1e-12
            torch.testing.assert_close(fast, plain, rtol=tolerance, atol=tolerance * float(plain.abs().max()))


@rows_and_paths
def test_default_dtype_does_not_change_anything(row: Contract, path: str) -> None:
    runs = []
    for default in (torch.float32, torch.float64):
        torch.set_default_dtype(default)
        model, opt = fresh(row, **row.paths[path])
        train(row, model, opt, range(3))
        runs.append(snapshot(opt))
    assert_same(runs[0]["weights"], runs[1]["weights"])
    assert_same(runs[0]["state"], runs[1]["state"])


@rows
def test_repr_shows_the_hyperparameters(row: Contract) -> None:
    _, opt = fresh(row)
    assert row.name in repr(opt)
    assert all(f"{name}: " in repr(opt) for name in row.base)
