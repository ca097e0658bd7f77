"""A run that is saved, copied or loaded goes on bitwise, for every row of the contract table."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.optim.contract import (
    Contract,
    TinyNet,
    assert_same,
    cases,
    cases_and_paths,
    fresh,
    rows,
    rows_and_dtypes,
    snapshot,
    train,
    weights,
)


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
    resumed, resumed_opt = fresh(row, **row.reseeded(**kwargs, **path))
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
