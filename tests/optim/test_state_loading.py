"""Checkpoints: what they hold, what is refused, across dtypes, from ivon-opt, and between a sample and its step."""

from __future__ import annotations

import copy
import io
import math
import pickle
from collections.abc import Callable
from typing import Any

import ivon
import pytest
import torch
from torch import Tensor, nn

from tests.optim.contract import TinyNet, assert_same, batch, in_block, mse, snapshot
from varlearn import IVON

KWARGS: dict[str, Any] = {"lr": 0.1, "ess": 100.0, "betas": (0.9, 0.99), "weight_decay": 0.01, "seed": 1}


def trained(steps: int = 3, dtype: torch.dtype = torch.float32, **kwargs: Any) -> tuple[TinyNet, IVON]:
    model = TinyNet(dtype)
    opt = IVON(model.parameters(), **{**KWARGS, **kwargs})
    for index in range(steps):
        in_block(opt, lambda index=index: mse(model, index))
        opt.step()
    return model, opt


def through_a_file(value: Any) -> Any:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, map_location="cpu", weights_only=True)


# What is in it


def test_the_state_is_per_parameter_and_plain() -> None:
    model, opt = trained(prior_mean="init")
    saved = through_a_file(opt.state_dict())
    assert list(saved["state"]) == list(range(5))
    for index, param in enumerate(model.parameters()):
        state = saved["state"][index]
        assert set(state) == {"step", "momentum", "hess", "prior_mean"}
        assert state["step"] == 3
        assert all(state[name].shape == param.shape for name in ("momentum", "hess", "prior_mean"))
    assert saved["param_groups"][0]["draws"] == 3


def test_low_precision_parameters_save_their_mean_in_float32() -> None:
    _, opt = trained(dtype=torch.bfloat16)
    saved = through_a_file(opt.state_dict())["state"][0]
    assert set(saved) == {"step", "momentum", "hess", "mean"}
    assert {saved[name].dtype for name in ("momentum", "hess", "mean")} == {torch.float32}


def test_pending_samples_are_not_in_it() -> None:
    model, opt = trained()
    before = copy.deepcopy(opt.state_dict())
    in_block(opt, lambda: mse(model))
    assert_same(before, opt.state_dict())


# Across dtypes

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


@pytest.mark.parametrize("target", DTYPES, ids=str)
@pytest.mark.parametrize("source", DTYPES, ids=str)
def test_a_state_loads_into_parameters_of_another_dtype(source: torch.dtype, target: torch.dtype) -> None:
    model, opt = trained(dtype=source)
    other = TinyNet(target)
    other_opt = IVON(other.parameters(), **KWARGS)
    other.load_state_dict(model.state_dict())
    other_opt.load_state_dict(through_a_file(opt.state_dict()))
    wide = torch.float64 if target == torch.float64 else torch.float32
    for old, new in zip(model.parameters(), other.parameters(), strict=True):
        state = other_opt.state[new]
        for name in ("momentum", "hess"):
            assert torch.equal(state[name], opt.state[old][name].to(wide))  # not rounded to the parameter's dtype
        assert ("mean" in state) == (target in (torch.bfloat16, torch.float16))
        if "mean" in state:
            assert state["mean"].dtype == torch.float32
            torch.testing.assert_close(state["mean"], new.float(), rtol=0.01, atol=0.0)
    in_block(other_opt, lambda: mse(other))
    other_opt.step()
    assert all(other_opt.state[param]["step"] == 4 for param in other.parameters())


@pytest.mark.parametrize("value", [-0.01 * (1.0 - 1e-12), 1e300], ids=["precision underflows", "overflows"])
def test_a_precision_that_float32_cannot_hold_is_mended_or_refused(value: float) -> None:
    model, opt = trained(dtype=torch.float64)
    saved = opt.state_dict()
    saved["state"][0]["hess"] = torch.full_like(model.scale, value)
    other = TinyNet()
    other_opt = IVON(other.parameters(), **KWARGS)
    before = snapshot(other_opt)
    try:
        other_opt.load_state_dict(saved)
    except ValueError:
        assert_same(before, snapshot(other_opt))
    else:
        hess = other_opt.state[other.scale]["hess"]
        assert math.isfinite(hess.item())
        assert (hess + 0.01).item() > 0.0


def test_a_state_loads_into_another_memory_format() -> None:
    def build(memory_format: torch.memory_format) -> tuple[nn.Conv2d, IVON]:
        model = nn.Conv2d(2, 3, 2).to(memory_format=memory_format)
        return model, IVON(model.parameters(), **KWARGS)

    model, opt = build(torch.contiguous_format)
    in_block(opt, lambda: model(torch.ones(1, 2, 3, 3)).square().mean())
    opt.step()
    other, other_opt = build(torch.channels_last)
    other_opt.load_state_dict(opt.state_dict())
    hess = other_opt.state[other.weight]["hess"]
    assert torch.equal(hess, opt.state[model.weight]["hess"])
    assert hess.stride() == other.weight.stride()


# Refused


def change(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def edit(saved: dict[str, Any]) -> None:
        saved["state"][1][name] = value(saved["state"][1][name]) if callable(value) else value

    return edit


def poison(value: float) -> Callable[[Tensor], Tensor]:
    def edit(tensor: Tensor) -> Tensor:
        tensor = tensor.clone()
        tensor.view(-1)[-1] = value
        return tensor

    return edit


def drop(name: str) -> Callable[[dict[str, Any]], None]:
    return lambda saved: saved["state"][1].pop(name)


UNSOUND: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "hess of another shape": (change("hess", lambda h: h.reshape(-1)), r"hess of parameter 1 has shape \(12,\)"),
    "momentum of another shape": (change("momentum", torch.ones(4, 4)), r"momentum of parameter 1 has shape \(4, 4\)"),
    "hess NaN": (change("hess", poison(math.nan)), "hess of parameter 1 has NaN or infinite"),
    "hess infinite": (change("hess", poison(math.inf)), "hess of parameter 1 has NaN or infinite"),
    "momentum NaN": (change("momentum", poison(math.nan)), "momentum of parameter 1 has NaN or infinite"),
    "prior mean NaN": (change("prior_mean", poison(math.nan)), "prior_mean of parameter 1 has NaN or infinite"),
    "precision zero": (change("hess", poison(-0.01)), r"precision h \+ delta of .* must be > 0"),
    "precision negative": (change("hess", poison(-1.0)), r"precision h \+ delta of -0.99.* must be > 0"),
    "step negative": (change("step", -1), "step of parameter 1 is -1; it must be an integer >= 0"),
    "step missing": (drop("step"), "step of parameter 1"),
    "step not a number": (change("step", "three"), "step of parameter 1"),
    "momentum missing": (drop("momentum"), "momentum"),
    "hess not a tensor": (change("hess", 1.0), "hess"),
    "weight decay NaN": (lambda saved: saved["param_groups"][0].update(weight_decay=math.nan), "weight_decay"),
    "lr negative": (lambda saved: saved["param_groups"][0].update(lr=-1.0), "lr=-1.0 must be"),
    "a group too many": (lambda saved: saved["param_groups"].append(saved["param_groups"][0]), "groups of"),
    "a parameter too few": (lambda saved: saved["param_groups"][0]["params"].pop(), "groups of"),
}


@pytest.mark.parametrize("case", UNSOUND)
def test_an_unsound_state_is_refused_and_nothing_changes(case: str) -> None:
    _, source = trained(steps=2, prior_mean="init")
    saved = copy.deepcopy(source.state_dict())
    edit, message = UNSOUND[case]
    edit(saved)
    model, opt = trained(steps=3, prior_mean="init")
    before = snapshot(opt)
    with pytest.raises((ValueError, TypeError), match=message):
        opt.load_state_dict(saved)
    assert_same(before, snapshot(opt))
    in_block(opt, lambda: mse(model))
    opt.step()
    assert all(opt.state[param]["step"] == 4 for param in model.parameters())


def test_the_state_of_another_optimizer_is_refused() -> None:
    model = TinyNet()
    adam = torch.optim.AdamW(model.parameters())
    mse(model).backward()
    adam.step()
    model.zero_grad()
    opt = IVON(model.parameters(), **KWARGS)
    before = snapshot(opt)
    with pytest.raises(ValueError, match="saved by another optimizer"):
        opt.load_state_dict(adam.state_dict())
    assert_same(before, snapshot(opt))


# Between a sample and its step


@pytest.mark.parametrize("train", [False, True], ids=["evaluation", "training"])
def test_loading_while_a_sample_is_in_is_refused(train: bool) -> None:
    _, opt = trained()
    saved = opt.state_dict()
    before = snapshot(opt)
    with opt.sampled_params(train=train), pytest.raises(RuntimeError, match="leave the block"):
        opt.load_state_dict(saved)
    assert_same(before, snapshot(opt))


def save_state_dict(opt: IVON) -> Any:
    return opt.state_dict()


@pytest.mark.parametrize("save", [save_state_dict, pickle.dumps, copy.deepcopy], ids=lambda save: save.__name__)
@pytest.mark.parametrize("mode", [False, True], ids=["block", "train()"])
def test_saving_while_a_training_sample_is_in_is_refused(save: Callable[[Any], Any], mode: bool) -> None:
    """Each of them would store weights, or go with weights, that carry noise."""
    _, opt = trained()
    before = snapshot(opt)
    if mode:
        opt.train()
        with pytest.raises(RuntimeError, match=r"eval\(\)"):
            save(opt)
        opt.eval()
    else:
        with opt.sampled_params(train=True), pytest.raises(RuntimeError, match="leave the block"):
            save(opt)
    assert_same(before, snapshot(opt))
    save(opt)


@pytest.mark.parametrize("samples", [1, 2])
def test_a_state_saved_between_sample_and_step_resumes_bitwise(samples: int) -> None:
    model, opt = trained()

    def sample(model: TinyNet, opt: IVON) -> None:
        for index in range(samples):
            in_block(opt, lambda index=index: mse(model, 10 + index))

    sample(model, opt)
    saved = through_a_file([model.state_dict(), opt.state_dict()])
    opt.step()

    resumed = TinyNet()
    resumed_opt = IVON(resumed.parameters(), **KWARGS)
    resumed.load_state_dict(saved[0])
    resumed_opt.load_state_dict(saved[1])
    sample(resumed, resumed_opt)  # the same draws again
    resumed_opt.step()
    assert_same(snapshot(opt), snapshot(resumed_opt))


def test_a_mode_saved_after_eval_resumes_bitwise() -> None:
    model, opt = trained()

    def sample(model: TinyNet, opt: IVON) -> None:
        opt.train()
        opt.zero_grad()
        mse(model).backward()
        opt.eval()

    sample(model, opt)
    saved = through_a_file([model.state_dict(), opt.state_dict()])
    opt.step()
    resumed = TinyNet()
    resumed_opt = IVON(resumed.parameters(), **KWARGS)
    resumed.load_state_dict(saved[0])
    resumed_opt.load_state_dict(saved[1])
    sample(resumed, resumed_opt)
    resumed_opt.step()
    assert_same(snapshot(opt), snapshot(resumed_opt))


def test_loading_drops_the_samples_that_wait() -> None:
    model, opt = trained()
    saved = copy.deepcopy(opt.state_dict())
    in_block(opt, lambda: mse(model))
    opt.load_state_dict(saved)
    opt.zero_grad()
    before = snapshot(opt)
    opt.step()
    assert_same(before, snapshot(opt))


def test_evaluation_after_resume_draws_what_the_uninterrupted_run_draws() -> None:
    model, opt = trained()
    saved = through_a_file([model.state_dict(), opt.state_dict()])
    resumed = TinyNet()
    resumed_opt = IVON(resumed.parameters(), **KWARGS)
    resumed.load_state_dict(saved[0])
    resumed_opt.load_state_dict(saved[1])
    for _ in range(2):
        with opt.sampled_params(), resumed_opt.sampled_params():
            assert_same([p.detach() for p in model.parameters()], [p.detach() for p in resumed.parameters()])


# ivon-opt

PEER: dict[str, Any] = {"lr": 0.05, "ess": 50.0, "hess_init": 0.7, "beta1": 0.8, "beta2": 0.99, "weight_decay": 0.01}


def split(model: TinyNet) -> list[dict[str, Any]]:
    rest = [*model.second.parameters(), model.scale]
    return [{"params": list(model.first.parameters())}, {"params": rest, "lr": 0.02}]


def peer_run(steps: int, dtype: torch.dtype = torch.float64) -> tuple[TinyNet, ivon.IVON]:
    model = TinyNet(dtype)
    peer = ivon.IVON(split(model), **PEER)
    for index in range(steps):
        in_block(peer, lambda index=index: mse(model, index % 4))
        peer.step()
    return model, peer


def test_a_real_run_of_ivon_opt_goes_on_as_ivon_opt_would(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both continue on the same noise: what ours draws is handed to the peer through its `torch.randn`."""
    model, peer = peer_run(steps=300)
    ours = TinyNet(torch.float64)
    opt = IVON(split(ours), lr=1.0, ess=1.0, seed=5)
    ours.load_state_dict(model.state_dict())
    opt.load_state_dict(through_a_file(peer.state_dict()))
    assert [group["lr"] for group in opt.param_groups] == [0.05, 0.02]
    assert all(group["betas"] == (0.8, 0.99) and group["ess"] == 50.0 for group in opt.param_groups)

    for step in range(20):
        means = [[p.detach().clone() for p in group["params"]] for group in opt.param_groups]
        noise = []
        with opt.sampled_params(train=True):
            for group, group_means in zip(opt.param_groups, means, strict=True):
                precision = [group["ess"] * (opt.state[p]["hess"] + group["weight_decay"]) for p in group["params"]]
                zipped = zip(group["params"], group_means, precision, strict=True)
                noise.append(torch.cat([((p.detach() - m) * s.sqrt()).flatten() for p, m, s in zipped]))
            opt.zero_grad()
            mse(ours, step).backward()
        opt.step()

        inputs, targets = batch(step, torch.float64)
        with monkeypatch.context() as patch:
            patch.setattr(torch, "randn", lambda *_, noise=noise, **__: noise.pop(0))
            with peer.sampled_params(train=True):
                peer.zero_grad()
                nn.functional.mse_loss(model(inputs), targets).backward()
        peer.step()

        for theirs, param in zip(model.parameters(), ours.parameters(), strict=True):
            torch.testing.assert_close(param, theirs, rtol=1e-9, atol=1e-10)
        for group, peer_group in zip(opt.param_groups, peer.param_groups, strict=True):
            hess = torch.cat([opt.state[p]["hess"].flatten() for p in group["params"]])
            torch.testing.assert_close(hess, peer_group["hess"], rtol=1e-8, atol=1e-9)


def test_a_checkpoint_of_ivon_opt_with_a_frozen_parameter_loads() -> None:
    """ivon-opt's flat tensors have room for frozen parameters too."""
    frozen, weight = nn.Parameter(torch.ones(2), requires_grad=False), nn.Parameter(torch.ones(3))
    peer = ivon.IVON([frozen, weight], **PEER)
    in_block(peer, lambda: (weight**2).sum())
    peer.step()
    opt = IVON([frozen, weight], lr=1.0, ess=1.0)
    opt.load_state_dict(peer.state_dict())
    assert torch.equal(opt.state[weight]["hess"], peer.param_groups[0]["hess"][2:])
    assert torch.equal(opt.state[weight]["momentum"], peer.param_groups[0]["momentum"][2:])


def test_a_bfloat16_checkpoint_of_ivon_opt_loads_into_float32_state() -> None:
    model, peer = peer_run(steps=2, dtype=torch.bfloat16)
    opt = IVON(split(model), lr=1.0, ess=1.0)
    opt.load_state_dict(through_a_file(peer.state_dict()))
    names = ("hess", "momentum", "mean")
    assert {opt.state[param][name].dtype for param in model.parameters() for name in names} == {torch.float32}
    in_block(opt, lambda: mse(model))
    opt.step()


@pytest.mark.parametrize("fault", ["size", "nan", "precision"])
def test_an_unsound_checkpoint_of_ivon_opt_is_refused(fault: str) -> None:
    model, peer = peer_run(steps=2)
    saved = copy.deepcopy(peer.state_dict())
    hess = saved["param_groups"][1]["hess"]
    if fault == "size":
        saved["param_groups"][1]["hess"] = hess[:-1]
    else:
        hess[-1] = math.nan if fault == "nan" else -1.0
    opt = IVON(split(model), lr=1.0, ess=1.0)
    before = snapshot(opt)
    with pytest.raises(ValueError, match={"size": "has 10 entries", "nan": "NaN", "precision": "must be > 0"}[fault]):
        opt.load_state_dict(saved)
    assert_same(before, snapshot(opt))
