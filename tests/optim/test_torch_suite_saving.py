"""What PyTorch asks of its own optimizers' state dicts, asked of ours; see `test_torch_suite`."""

import copy
import io
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict

from tests.optim.torch_suite import (
    BASES,
    ROWS,
    Problem,
    assert_equal,
    each_configuration,
    each_optimizer,
)


@each_configuration
def test_state_dict_deterministic(kwargs: dict[str, Any]) -> None:
    problem = Problem(kwargs)
    problem.steps()
    other = problem.copied()
    saved = problem.opt.state_dict()
    given = copy.deepcopy(saved)
    other.opt.load_state_dict(given)
    assert_equal(saved, given)  # loading has not changed what it was given
    problem.steps()
    other.steps()
    assert torch.equal(problem.weight, other.weight)
    assert_equal(problem.opt.state_dict(), other.opt.state_dict())


@each_configuration
def test_can_load_older_state_dict(kwargs: dict[str, Any]) -> None:
    problem = Problem(kwargs)
    for key in ("maximize", "foreach", "fused", "memory", "nonfinite", "noise"):
        problem.steps(1)
        saved = problem.opt.state_dict()
        for group in saved["param_groups"]:
            group.pop(key, None)
        problem.opt.load_state_dict(saved)
        assert (key in problem.opt.param_groups[0]) == (key in problem.opt.defaults)
    problem.steps(1)


@each_configuration
def test_load_tensor_and_nontensor_step(kwargs: dict[str, Any]) -> None:
    """Step counts of PyTorch's optimizers are tensors; both kinds load."""
    problem, plain = Problem(kwargs), Problem(kwargs)
    for each in (problem, plain):
        each.steps()
    saved = problem.opt.state_dict()
    for state in saved["state"].values():
        state["step"] = torch.tensor(float(state["step"]))
    problem.opt.load_state_dict(saved)
    problem.steps()
    plain.steps()
    assert torch.equal(problem.weight, plain.weight)


@each_configuration
def test_can_load_from_to_named_state_dict(kwargs: dict[str, Any]) -> None:
    def groups(weight: Tensor, bias: Tensor) -> Any:
        return [("weight", weight), ("bias", bias)]

    for names in ((groups, None), (None, groups), (groups, groups)):
        saved, loaded = (Problem(kwargs, each) for each in names)
        saved.steps(2)
        loaded.weight.data.copy_(saved.weight)
        loaded.bias.data.copy_(saved.bias)
        loaded.opt.load_state_dict(saved.opt.state_dict())
        saved.steps(2)
        loaded.steps(2)
        assert torch.equal(saved.weight, loaded.weight)


@each_configuration
def test_save_load_equality_with_weights_only(kwargs: dict[str, Any]) -> None:
    problem = Problem(kwargs)
    problem.steps()
    file = io.BytesIO()
    torch.save(problem.opt.state_dict(), file)
    file.seek(0)
    assert_equal(torch.load(file, weights_only=True), problem.opt.state_dict())


@each_configuration
def test_deepcopy_optimizer_no_warning(kwargs: dict[str, Any]) -> None:
    problem = Problem(kwargs)
    problem.steps()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        copied = copy.deepcopy(problem.opt)
    assert_equal(copied.state_dict(), problem.opt.state_dict())
    public = [{name for name in vars(each) if not name.startswith("_")} for each in (problem.opt, copied)]
    assert public[0] == public[1]
    assert copied.defaults.keys() == problem.opt.defaults.keys()


@each_configuration
def test_non_empty_state(kwargs: dict[str, Any]) -> None:
    problem = Problem(kwargs)
    problem.steps(1)
    assert all(problem.opt.state[param] for param in (problem.weight, problem.bias))


@each_optimizer
@pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")
def test_a_checkpoint_is_loaded_three_times_into_the_same_optimizer(cls: Any, tmp_path: Path) -> None:
    net = nn.Linear(3, 2)
    opt = cls(net.parameters(), **BASES[cls])

    def train() -> None:
        opt.zero_grad()
        ROWS[cls].step(opt, lambda: net(torch.ones(1, 3)).square().sum())

    train()
    saved = get_optimizer_state_dict(net, opt)
    dcp.save({"optimizer": saved}, checkpoint_id=tmp_path, no_dist=True)
    groups = copy.deepcopy([{k: v for k, v in group.items() if k != "params"} for group in opt.param_groups])
    before = {name: value.detach().clone() for name, value in net.named_parameters()}
    for _ in range(3):
        state = {"optimizer": get_optimizer_state_dict(net, opt)}
        dcp.load(state, checkpoint_id=tmp_path, no_dist=True)
        set_optimizer_state_dict(net, opt, state["optimizer"])
        net.load_state_dict(before)
        assert [{k: v for k, v in group.items() if k != "params"} for group in opt.param_groups] == groups
        train()
        after = net.weight.detach().clone()
    net.load_state_dict(before)
    state = {"optimizer": get_optimizer_state_dict(net, opt)}
    dcp.load(state, checkpoint_id=tmp_path, no_dist=True)
    set_optimizer_state_dict(net, opt, state["optimizer"])
    train()
    assert torch.equal(net.weight, after)


@each_optimizer
def test_a_resumed_run_saves_the_same_keys_as_an_uninterrupted_one(cls: Any) -> None:
    problem = Problem(BASES[cls] | {"optimizer": cls})
    problem.steps()
    resumed = problem.copied()
    resumed.opt.load_state_dict(problem.opt.state_dict())
    assert resumed.opt.state_dict()["param_groups"] == problem.opt.state_dict()["param_groups"]
    old = problem.opt.state_dict()
    old["param_groups"][0]["differentiable"] = False  # as earlier versions saved after a resume
    resumed.opt.load_state_dict(old)
    assert resumed.opt.state_dict()["param_groups"] == problem.opt.state_dict()["param_groups"]
