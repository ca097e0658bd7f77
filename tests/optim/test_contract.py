"""What PyTorch users take for granted of an optimizer, for every row of the contract table."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import AdamW, lr_scheduler
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from tests.optim.contract import CONTRACTS, Contract, TinyNet, assert_same, mse, snapshot, train, weights

rows = pytest.mark.parametrize("row", CONTRACTS, ids=lambda row: row.name)
cases = pytest.mark.parametrize(
    ("row", "kwargs"),
    [pytest.param(row, kwargs, id=f"{row.name}-{name}") for row in CONTRACTS for name, kwargs in row.variants.items()],
)
cases_and_paths = pytest.mark.parametrize(
    ("row", "kwargs", "path"),
    [
        pytest.param(row, kwargs, path, id=f"{row.name}-{name}-{path_name}")
        for row in CONTRACTS
        for name, kwargs in row.variants.items()
        for path_name, path in row.paths.items()
    ],
)
rows_and_dtypes = pytest.mark.parametrize(
    ("row", "dtype"), [pytest.param(row, dtype, id=f"{row.name}-{dtype}") for row in CONTRACTS for dtype in row.dtypes]
)


def fresh(row: Contract, dtype: torch.dtype = torch.float32, **kwargs: Any) -> tuple[TinyNet, Any]:
    model = TinyNet(dtype)
    return model, row.make(model.parameters(), **kwargs)


def tensor_state(opt: Any) -> list[Tensor]:
    return [value for state in opt.state.values() for value in state.values() if isinstance(value, Tensor)]


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
        loss.backward()
        losses.append(loss.item())
        return loss

    returned = opt.step(closure)
    assert len(losses) == kwargs.get("mc_samples", 1)
    assert float(returned) == pytest.approx(sum(losses) / len(losses), rel=1e-6)
    assert not returned.requires_grad
    assert all(state["step"] == 1 for state in opt.state.values())


# Resume


@cases_and_paths
def test_resume_is_bitwise(row: Contract, kwargs: dict, path: dict) -> None:
    model, opt = fresh(row, **kwargs, **path)
    train(row, model, opt, range(2))
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "opt": opt.state_dict()}, file)
    train(row, model, opt, range(2, 5))

    torch.manual_seed(99)  # the noise is the checkpoint's, not the process's
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    resumed, resumed_opt = fresh(row, **{**kwargs, **path, "seed": 7})
    resumed.load_state_dict(saved["model"])
    resumed_opt.load_state_dict(saved["opt"])
    train(row, resumed, resumed_opt, range(2, 5))
    assert_same(snapshot(opt), snapshot(resumed_opt))


@rows_and_dtypes
def test_resume_is_bitwise_in_every_dtype(row: Contract, dtype: torch.dtype) -> None:
    model, opt = fresh(row, dtype)
    train(row, model, opt, range(3))
    saved = copy.deepcopy((model.state_dict(), opt.state_dict()))
    train(row, model, opt, range(3, 7))
    resumed, resumed_opt = fresh(row, dtype)
    resumed.load_state_dict(saved[0])
    resumed_opt.load_state_dict(saved[1])
    train(row, resumed, resumed_opt, range(3, 7))
    assert_same(snapshot(opt), snapshot(resumed_opt))


def by_deepcopy(pair: Any) -> Any:
    return copy.deepcopy(pair)


def by_pickle(pair: Any) -> Any:
    return pickle.loads(pickle.dumps(pair))


def by_torch_save(pair: Any) -> Any:
    file = io.BytesIO()
    torch.save(pair, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("clone", [by_deepcopy, by_pickle, by_torch_save])
@cases
def test_a_copy_of_model_and_optimizer_goes_on_bitwise(row: Contract, kwargs: dict, clone: Callable) -> None:
    model, opt = fresh(row, **kwargs)
    train(row, model, opt, range(3))
    other, other_opt = clone((model, opt))
    assert type(other_opt) is type(opt)
    assert next(iter(other.parameters())) is other_opt.param_groups[0]["params"][0]
    train(row, model, opt, range(3, 6))
    train(row, other, other_opt, range(3, 6))
    assert_same(snapshot(opt), snapshot(other_opt))


@rows
def test_deepcopy_keeps_public_attributes(row: Contract) -> None:
    _, opt = fresh(row)
    public = {name for name in vars(opt) if not name.startswith("_")}
    assert public <= set(vars(copy.deepcopy(opt)))


@rows
def test_state_dict_is_deterministic(row: Contract) -> None:
    dicts = []
    for _ in range(2):
        model, opt = fresh(row)
        train(row, model, opt, range(3))
        dicts.append(opt.state_dict())
    assert_same(dicts[0], dicts[1])
    assert set(dicts[0]["state"]) == set(range(5))


@rows
def test_state_of_a_newer_version_loads_into_an_older_file_and_back(row: Contract) -> None:
    """A checkpoint that lacks a hyperparameter gets its default; one that has more keeps it."""
    model, opt = fresh(row)
    train(row, model, opt, range(2))
    saved = opt.state_dict()
    del saved["param_groups"][0]["maximize"]
    saved["param_groups"][0]["of_the_future"] = 1
    other, other_opt = fresh(row)
    other_opt.load_state_dict(saved)
    assert other_opt.param_groups[0]["maximize"] is False
    assert other_opt.param_groups[0]["of_the_future"] == 1
    train(row, other, other_opt, range(2))


@pytest.mark.parametrize("from_named", [False, True])
@pytest.mark.parametrize("to_named", [False, True])
@rows
def test_named_and_unnamed_states_load_into_each_other(row: Contract, from_named: bool, to_named: bool) -> None:
    def build(named: bool) -> tuple[TinyNet, Any]:
        model = TinyNet()
        return model, row.make(model.named_parameters() if named else model.parameters())

    model, opt = build(from_named)
    train(row, model, opt, range(2))
    if from_named:
        assert opt.state_dict()["param_groups"][0]["param_names"] == [name for name, _ in model.named_parameters()]
    other, other_opt = build(to_named)
    other.load_state_dict(model.state_dict())
    other_opt.load_state_dict(opt.state_dict())
    train(row, model, opt, range(2, 4))
    train(row, other, other_opt, range(2, 4))
    assert_same(weights(model), weights(other))


@rows
def test_loaded_state_is_a_copy(row: Contract) -> None:
    model, opt = fresh(row)
    train(row, model, opt, range(2))
    saved = opt.state_dict()
    _, other = fresh(row)
    other.load_state_dict(saved)
    before = snapshot(other)
    train(row, model, opt, range(2, 4))
    assert_same(before["state"], snapshot(other)["state"])


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


@rows
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


@rows
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


@rows
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


@pytest.mark.parametrize("path", ["foreach", "fused", "default"])
@cases
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


@pytest.mark.parametrize("path", ["loop", "foreach", "fused"])
@rows
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


# Learning rates and schedulers

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
    oracle = AdamW(TinyNet().parameters(), lr=0.1, betas=row.base["betas"])
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
@pytest.mark.parametrize("path", ["loop", "foreach", "fused"])
@rows
def test_tensor_lr_is_the_number_it_holds(row: Contract, lr: Tensor, path: str) -> None:
    model, opt = fresh(row, lr=lr, **row.paths[path])
    other, other_opt = fresh(row, lr=lr.item(), **row.paths[path])
    train(row, model, opt, range(3))
    train(row, other, other_opt, range(3))
    assert_same(weights(model), weights(other))
    opt.param_groups[0]["lr"].fill_(0.0)
    train(row, model, opt, range(3))
    assert_same(weights(model), weights(other))


# Hooks


@rows
def test_step_hooks_run_around_the_step_and_see_its_arguments(row: Contract) -> None:
    model, opt = fresh(row)
    before = weights(model)
    seen: list[str] = []

    def pre(optimizer: Any, args: tuple, kwargs: dict) -> None:
        assert optimizer is opt
        assert args in ((), (opt,))
        assert kwargs == {}
        assert_same(before, weights(model))
        seen.append("pre")

    def post(optimizer: Any, args: tuple, kwargs: dict) -> None:
        assert not torch.equal(model.first.weight, before[0])
        seen.append("post")

    handles = [opt.register_step_pre_hook(pre), opt.register_step_post_hook(post)]
    handles.append(register_optimizer_step_pre_hook(lambda *_: seen.append("global pre")))
    handles.append(register_optimizer_step_post_hook(lambda *_: seen.append("global post")))
    try:
        train(row, model, opt, range(1))
    finally:
        for handle in handles:
            handle.remove()
    assert seen == ["global pre", "pre", "post", "global post"]
    train(row, model, opt, range(1))
    assert len(seen) == 4


@rows
def test_state_dict_hooks(row: Contract) -> None:
    model, opt = fresh(row)
    train(row, model, opt, range(1))
    seen: list[str] = []
    opt.register_state_dict_pre_hook(lambda *_: seen.append("pre"))
    opt.register_state_dict_pre_hook(lambda *_: seen.append("first pre"), prepend=True)

    def post(_: Any, state_dict: dict) -> dict:
        seen.append("post")
        return {**state_dict, "note": "kept"}

    opt.register_state_dict_post_hook(post)
    assert opt.state_dict()["note"] == "kept"
    assert seen == ["first pre", "pre", "post"]


@rows
def test_load_state_dict_pre_hook_may_replace_the_state(row: Contract) -> None:
    model, opt = fresh(row)
    train(row, model, opt, range(1))

    def pre(_: Any, state_dict: dict) -> dict:
        changed = copy.deepcopy(state_dict)
        changed["param_groups"][0]["lr"] = 0.7
        return changed

    opt.register_load_state_dict_pre_hook(pre)
    saved = opt.state_dict()
    opt.load_state_dict(saved)
    opt.load_state_dict(saved)  # the optimizer's own hook is not left behind
    assert opt.param_groups[0]["lr"] == 0.7
    assert saved["param_groups"][0]["lr"] == row.base["lr"]


@rows_and_dtypes
def test_load_state_dict_post_hook_sees_and_may_change_the_loaded_state(row: Contract, dtype: torch.dtype) -> None:
    model, opt = fresh(row, dtype)
    train(row, model, opt, range(2))
    saved = copy.deepcopy(opt.state_dict())
    train(row, model, opt, range(2))
    expected = [value for state in saved["state"].values() for value in state.values() if isinstance(value, Tensor)]
    first = next(model.parameters())

    def post(optimizer: Any) -> None:
        assert_same(expected, tensor_state(optimizer))
        optimizer.state[first]["momentum"].zero_()

    opt.register_load_state_dict_post_hook(post)
    opt.load_state_dict(saved)
    assert not opt.state[first]["momentum"].any()


# Errors


@pytest.mark.parametrize(
    ("row", "name", "value"),
    [
        pytest.param(row, name, value, id=f"{row.name}-{name}={value!r}")
        for row in CONTRACTS
        for name, values in row.bad.items()
        for value in values
    ],
)
def test_a_bad_hyperparameter_is_refused_everywhere(row: Contract, name: str, value: Any) -> None:
    """In the constructor, in a group given to it, in `add_param_group`, and when it is set while training."""
    good, more = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))

    def refused(call: Callable[[], Any]) -> None:
        with pytest.raises((ValueError, TypeError)) as caught:
            call()
        message = str(caught.value)
        said = ("beta1", "beta2", "betas") if name == "betas" else (name,)
        assert message.startswith(tuple(f"{word}=" for word in said)), message  # the value,
        assert " must be " in message, message  # the rule
        assert "; " in message, message  # and the cure

    refused(lambda: row.make([good], **{name: value}))
    refused(lambda: row.make([{"params": [good]}, {"params": [more], name: value}]))

    opt = row.make([good])
    row.step(opt, lambda: (good**2).sum())
    before = snapshot(opt)
    refused(lambda: opt.add_param_group({"params": [more], name: value}))
    assert_same(before, snapshot(opt))

    right = opt.param_groups[0][name]
    opt.param_groups[0][name] = value
    refused(lambda: row.backward(opt, lambda: (good**2).sum()))
    opt.param_groups[0][name] = right
    row.backward(opt, lambda: (good**2).sum())
    opt.param_groups[0][name] = value
    refused(opt.step)
    opt.param_groups[0][name] = right
    assert_same(before, snapshot(opt))
    opt.step()  # the sample waited
    assert opt.state[good]["step"] == 2
