"""Hooks and refused hyperparameters, for every row of the contract table."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from tests.optim.contract import (
    CONTRACTS,
    Contract,
    assert_same,
    fresh,
    rows,
    rows_and_dtypes,
    snapshot,
    tensor_state,
    train,
    weights,
)

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
        optimizer.state[first][optimizer.rule.state[0]].zero_()

    opt.register_load_state_dict_post_hook(post)
    opt.load_state_dict(saved)
    assert not opt.state[first][opt.rule.state[0]].any()


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
