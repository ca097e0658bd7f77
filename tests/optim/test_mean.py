"""The mean is never lost: not under inference mode, in any storage, when written to from outside, in low precision."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.optim.contract import TinyNet, assert_same, in_block, mse, snapshot, weights
from varlearn import IVON

KWARGS: dict[str, Any] = {"lr": 0.1, "ess": 100.0, "betas": (0.9, 0.99), "seed": 1}
LOW = (torch.bfloat16, torch.float16)
ALL = (torch.float64, torch.float32, *LOW)


def fresh(dtype: torch.dtype = torch.float32, steps: int = 2, **kwargs: Any) -> tuple[TinyNet, IVON]:
    model = TinyNet(dtype)
    opt = IVON(model.parameters(), **{**KWARGS, **kwargs})
    for index in range(steps):
        step(model, opt, index)
    return model, opt


def step(model: TinyNet, opt: IVON, index: int = 0) -> None:
    in_block(opt, lambda: mse(model, index))
    opt.step()


# Inference mode


@pytest.mark.parametrize("steps", [0, 2], ids=["first sample ever", "later"])
@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_evaluation_under_inference_mode(dtype: torch.dtype, steps: int) -> None:
    plain, plain_opt = fresh(dtype, steps)
    model, opt = fresh(dtype, steps)
    mean = weights(model)
    with torch.inference_mode(), opt.sampled_params():
        assert not torch.equal(model.scale, mean[0])
    with opt.sampled_params(), torch.inference_mode():
        mse(model)
    assert_same(weights(model), mean)
    for a_model, an_opt in ((plain, plain_opt), (model, opt)):
        step(a_model, an_opt)
        state = an_opt.state[a_model.scale]
        assert not any(value.is_inference() for value in state.values() if isinstance(value, Tensor))
    assert_same(snapshot(opt), snapshot(plain_opt))


# Storage


@pytest.mark.parametrize("memory", ["fast", "lean"])
def test_identity_storage_strides_and_views_are_kept(memory: Any) -> None:
    flat = torch.linspace(-1.0, 1.0, 40)
    layouts = {
        "slice of a buffer": flat[:6].view(2, 3),
        "transposed": flat[6:12].view(2, 3).t(),
        "with gaps": flat[12:24:2],
        "0-dim": flat[24],
        "channels last": torch.ones(2, 3, 2, 2).to(memory_format=torch.channels_last),
    }
    params = {name: nn.Parameter(tensor) for name, tensor in layouts.items()}
    opt = IVON(params.values(), memory=memory, **KWARGS)
    before = {name: (p.data_ptr(), p.stride(), p.storage_offset(), id(p)) for name, p in params.items()}
    untouched = flat[25:].clone()
    for _ in range(3):
        with opt.sampled_params(train=True):
            opt.zero_grad()
            inside = {name: (p.data_ptr(), p.stride(), p.storage_offset(), id(p)) for name, p in params.items()}
            sum((p**2).sum() for p in params.values()).backward()  # type: ignore[union-attr]
        opt.step()
    assert inside == before
    assert {name: (p.data_ptr(), p.stride(), p.storage_offset(), id(p)) for name, p in params.items()} == before
    assert torch.equal(flat[:6].view(2, 3), params["slice of a buffer"])  # the buffer sees the update
    assert torch.equal(flat[25:], untouched)
    assert torch.equal(flat[13:24:2], torch.linspace(-1.0, 1.0, 40)[13:24:2])  # nothing is written into the gaps


def test_a_transposed_parameter_is_its_contiguous_twin_transposed() -> None:
    start = torch.linspace(-1.0, 1.0, 6).view(2, 3)
    plain, turned = nn.Parameter(start.clone()), nn.Parameter(start.clone().t())
    for param in (plain, turned):
        opt = IVON([param], **KWARGS)
        for _ in range(3):
            in_block(opt, lambda param=param: (param**2 + param.abs().sqrt()).sum())
            opt.step()
    assert torch.equal(plain, turned.t())


# Weights changed from outside


@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize("how", ["copy_", "load_state_dict", "data", "entry"])
def test_weights_changed_between_steps_are_respected(how: str, dtype: torch.dtype) -> None:
    model, opt = fresh(dtype)
    mean = {name: param.detach().clone() for name, param in model.named_parameters()}
    new = {name: value.clone() for name, value in mean.items()}
    new["first.weight"][0, 0] = 3.0
    if how == "copy_":
        with torch.no_grad():
            model.first.weight.copy_(new["first.weight"])
    elif how == "load_state_dict":
        model.load_state_dict(new)
    elif how == "data":
        model.first.weight.data = new["first.weight"].clone()
    else:
        model.first.weight.data[0, 0] = 3.0
    with opt.sampled_params():
        assert abs(model.first.weight[0, 0].item() - 3.0) < 1.0
    assert_same({name: param.detach() for name, param in model.named_parameters()}, new)
    opt.param_groups[0]["lr"] = 0.0
    step(model, opt)
    assert_same({name: param.detach() for name, param in model.named_parameters()}, new)


def test_weights_changed_between_sample_and_step_are_respected() -> None:
    model, opt = fresh()
    in_block(opt, lambda: mse(model))
    with torch.no_grad():
        model.scale.add_(1.0)
    value = model.scale.item()
    opt.param_groups[0]["lr"] = 0.0
    opt.step()
    assert model.scale.item() == value


@pytest.mark.parametrize("dtype", LOW, ids=str)
def test_a_model_that_is_cast_down_while_training_gets_a_float32_mean(dtype: torch.dtype) -> None:
    model, opt = fresh()
    model.to(dtype)
    opt.param_groups[0].update(lr=1e-6, weight_decay=0.0)
    for index in range(5):
        step(model, opt, index)
    mean = opt.state[model.first.weight]["mean"]
    assert mean.dtype == torch.float32
    assert not torch.equal(mean, model.first.weight.float())  # the small steps are kept


@pytest.mark.parametrize("memory", ["fast", "lean"])
def test_a_model_that_is_cast_up_while_training_goes_on(memory: str) -> None:
    model, opt = fresh(torch.bfloat16, memory=memory)
    model.float()
    mean = weights(model)
    for _ in range(2):
        with opt.sampled_params():
            assert not torch.equal(model.scale, mean[0])
    torch.testing.assert_close(weights(model), mean, rtol=1e-6, atol=1e-6)
    step(model, opt)
    assert not torch.equal(model.scale, mean[0])


def test_a_model_that_was_cast_up_has_no_second_mean() -> None:
    model, opt = fresh(torch.bfloat16)
    step(model, opt)
    assert all(state["mean"].dtype == torch.float32 for state in opt.state.values())
    model.float()
    step(model, opt)
    assert not any("mean" in state for state in opt.state.values())


# Low precision


@pytest.mark.parametrize("dtype", LOW, ids=str)
def test_steps_far_below_the_precision_of_the_weights_add_up(dtype: torch.dtype) -> None:
    weight = nn.Parameter(torch.ones(4, dtype=dtype))
    opt = IVON([weight], lr=1e-4, ess=100.0, hess_init=1.0, betas=(0.0, 1.0 - 1e-9), weight_decay=0.0, seed=0)
    for _ in range(200):  # each moves the mean by 1e-4; half an ulp below 1 is 2e-3 in bfloat16, 2.4e-4 in float16
        in_block(opt, lambda: weight.float().sum())
        opt.step()
    mean = opt.state[weight]["mean"]
    assert bool(((mean < 0.99) & (mean > 0.97)).all())
    assert torch.equal(weight, mean.to(dtype))


@pytest.mark.parametrize("dtype", LOW, ids=str)
def test_a_hundred_samples_do_not_move_a_low_precision_mean(dtype: torch.dtype) -> None:
    _, opt = fresh(dtype)
    before = snapshot(opt)
    for index in range(100):
        with opt.sampled_params(train=index % 2 == 0):
            pass
    assert_same(before["weights"], snapshot(opt)["weights"])
    assert_same(before["state"], snapshot(opt)["state"])


def test_lean_memory_recovers_the_mean_to_an_ulp_per_draw() -> None:
    model, opt = fresh(memory="lean")
    before = weights(model)
    for _ in range(100):
        with opt.sampled_params():
            pass
    for old, new in zip(before, weights(model), strict=True):
        ulp = torch.finfo(torch.float32).eps * (old.abs() + 0.2)  # of the largest number on the way: m + sigma epsilon
        assert bool(((new - old).abs() <= 100 * ulp).all())
