"""The first twelve of the 24 traps that other implementations of IVON fall into, one test each."""

import copy
import io
import math
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.optim.trap_helpers import assert_same, block, ivon, parameter, state_of
from tests.reference.algorithm1 import Algorithm1, Settings
from varlearn import IVON


def test_trap_01_squared_gradient_is_not_scaled_by_ess() -> None:
    weight = parameter(1)
    opt = ivon([weight], ess=1000.0, betas=(0.9, 0.5), weight_decay=0.0, hess_approx="squared_gradient")
    block(opt, lambda: 2.0 * weight.sum())
    opt.step()
    # h = 1, hhat = 2^2: 0.5 + 2 + 0.5 * 0.25 * 9
    assert opt.state[weight]["hess"].item() == pytest.approx(3.625)


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_trap_02_exception_inside_the_block_brings_the_mean_back(train: bool, error: type[BaseException]) -> None:
    weight = parameter(50)
    opt = ivon([weight])
    mean = weight.detach().clone()
    with pytest.raises(error), opt.sampled_params(train=train):  # noqa: PT012
        assert not torch.equal(weight, mean)
        raise error
    assert torch.equal(weight, mean)
    block(opt, lambda: weight.square().sum())
    opt.step()
    assert not torch.equal(weight, mean)


def test_trap_03_resumed_run_continues_bit_for_bit() -> None:
    def start() -> tuple[nn.Parameter, IVON]:
        weight = parameter(20)
        return weight, ivon([weight])

    def run(weight: nn.Parameter, opt: IVON, steps: int) -> None:
        for _ in range(steps):
            block(opt, lambda: (weight - 3.0).square().sum())
            opt.step()

    weight, opt = start()
    run(weight, opt, 5)
    file = io.BytesIO()
    torch.save({"weight": weight.detach(), "opt": opt.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    run(weight, opt, 5)
    other, resumed = start()
    resumed.load_state_dict(saved["opt"])
    with torch.no_grad():
        other.copy_(saved["weight"])
    assert resumed.state[other]["step"] == 5
    run(other, resumed, 5)
    assert_same(state_of(opt, weight), state_of(resumed, other))


def test_trap_04_state_belongs_to_parameters_and_survives_copying() -> None:
    model = nn.Linear(3, 2)
    opt = ivon(model.parameters())
    block(opt, lambda: model(torch.ones(1, 3)).square().sum())
    opt.step()
    saved = opt.state_dict()
    assert not any(isinstance(value, Tensor) for group in saved["param_groups"] for value in group.values())
    for index, param in enumerate(model.parameters()):
        assert saved["state"][index]["hess"].shape == saved["state"][index]["momentum"].shape == param.shape
    other, twin = copy.deepcopy((model, opt))
    pickled_model, pickled = pickle.loads(pickle.dumps((model, opt)))
    for m, o in ((model, opt), (other, twin), (pickled_model, pickled)):
        block(o, lambda m=m: m(torch.ones(1, 3)).square().sum())
        o.step()
    expected = state_of(opt, *model.parameters())
    assert_same(expected, state_of(twin, *other.parameters()))
    assert_same(expected, state_of(pickled, *pickled_model.parameters()))


def test_trap_05_parameter_without_gradient_is_skipped() -> None:
    used, unused = parameter(4), parameter(4, seed=1)
    opt = ivon([used, unused])
    with opt.sampled_params(train=True):
        loss = used.square().sum()
        loss.backward()
    before = state_of(opt, unused)
    mean = used.detach().clone()
    opt.step()
    assert_same(before, state_of(opt, unused))
    assert not torch.equal(used, mean)


def test_trap_06_frozen_parameter_is_never_touched() -> None:
    free, frozen = parameter(4), parameter(4, seed=1).requires_grad_(False)
    opt = ivon([free, frozen], weight_decay=0.5)
    value, version = frozen.clone(), frozen._version
    for _ in range(3):
        with opt.sampled_params(train=True):
            opt.zero_grad()
            assert torch.equal(frozen, value)
            (free * frozen).sum().backward()
        opt.step()
    assert torch.equal(frozen, value)
    assert frozen._version == version
    assert frozen not in opt.state


def test_trap_07_step_without_a_sample_says_what_to_write() -> None:
    weight = parameter(4)
    opt = ivon([weight])
    opt.step()  # nothing to do
    weight.square().sum().backward()
    before = weight.detach().clone()
    with pytest.raises(RuntimeError, match=r"sampled_params\(train=True\)"):
        opt.step()
    assert torch.equal(weight, before)


@pytest.mark.parametrize("idiom", ["blocks", "blocks_without_zero_grad", "micro_batches", "modes"])
def test_trap_08_accumulation_is_exact_in_every_idiom(idiom: str) -> None:
    """Four parts of a batch: ghat is their mean, hhat the mean of the products with their samples' noise."""
    weight = parameter(6, dtype=torch.float64)
    opt = ivon([weight])
    parts = torch.randn(4, 6, dtype=torch.float64)
    reference = Algorithm1(weight.detach().numpy(), Settings(delta=0.01, beta2=0.9))
    thetas, grads = [], []

    def backward(part: Tensor, divisor: float = 1.0) -> None:
        ((weight * part).sum() / divisor).backward()

    opt.zero_grad()
    if idiom.startswith("blocks"):
        for part in parts:
            with opt.sampled_params(train=True):
                if idiom == "blocks":
                    opt.zero_grad()
                backward(part)
                thetas.append(weight.detach().numpy().copy())
                grads.append(part.numpy())
    elif idiom == "micro_batches":
        with opt.sampled_params(train=True):
            for part in parts:
                backward(part, divisor=4.0)
            thetas.append(weight.detach().numpy().copy())
        grads.append(parts.mean(0).numpy())
    else:
        for part in parts:
            opt.train()
            backward(part, divisor=4.0)
            thetas[:] = [weight.detach().numpy().copy()]
        grads.append(parts.mean(0).numpy())
    assert weight.grad is not None
    torch.testing.assert_close(weight.grad, parts.mean(0))
    opt.step()
    reference.step(thetas, grads)
    np.testing.assert_allclose(opt.state[weight]["momentum"].numpy(), reference.g, rtol=1e-12)
    np.testing.assert_allclose(opt.state[weight]["hess"].numpy(), reference.h, rtol=1e-12)
    np.testing.assert_allclose(weight.detach().numpy(), reference.m, rtol=1e-12)


@pytest.mark.parametrize("samples", [1, 3])
def test_trap_09_clipping_after_the_block_has_its_effect(samples: int) -> None:
    weight = parameter(10)
    opt = ivon([weight], betas=(0.0, 0.9))
    for _ in range(samples):
        block(opt, lambda: 100.0 * weight.sum())
    norm = nn.utils.clip_grad_norm_([weight], 1.0)
    assert norm.item() == pytest.approx(100.0 * math.sqrt(10.0))
    opt.step()
    assert opt.state[weight]["momentum"].norm().item() == pytest.approx(1.0, rel=1e-4)


@pytest.mark.parametrize("samples", [1, 2])
def test_trap_09_value_clipping_leaves_hess_where_the_gradient_is_small(samples: int) -> None:
    def hess(clip: bool) -> Tensor:
        weight = nn.Parameter(torch.zeros(3))
        opt = ivon([weight])
        for _ in range(samples):
            block(opt, lambda: (weight * torch.tensor([100.0, 1.0, 1.0])).sum())
        if clip:
            nn.utils.clip_grad_value_([weight], 1.0)
        opt.step()
        return opt.state[weight]["hess"]

    clipped, free = hess(clip=True), hess(clip=False)
    assert clipped[0] != free[0]
    torch.testing.assert_close(clipped[1:], free[1:])


@pytest.mark.parametrize("samples", [1, 3])
def test_trap_10_max_grad_norm_clips_the_gradient_and_leaves_the_hessian(samples: int) -> None:
    """In 1,000 dimensions, curvature 2: `clip_grad_norm_` shrinks hhat with the gradient, `max_grad_norm` does not."""

    def run(clip: float | None = None, **options: Any) -> dict[str, Tensor]:
        weight = nn.Parameter(torch.zeros(1000))
        opt = ivon([weight], betas=(0.0, 0.5), weight_decay=0.0, **options)
        for _ in range(samples):
            block(opt, lambda: weight.square().sum())
        if clip is not None:
            nn.utils.clip_grad_norm_([weight], clip)
        opt.step()
        return opt.state[weight]

    free, ours, torchs = run(), run(max_grad_norm=0.1), run(clip=0.1)
    assert torch.equal(ours["hess"], free["hess"])
    ratio = 0.1 / free["momentum"].norm()
    assert ratio.item() < 0.1
    torch.testing.assert_close(ours["momentum"], free["momentum"] * ratio, rtol=1e-4, atol=0.0)
    # hhat of the clipped gradient is ratio * hhat, documented as the price of `clip_grad_norm_`.
    torch.testing.assert_close(torchs["momentum"], ours["momentum"], rtol=1e-4, atol=1e-9)
    assert torchs["hess"].mean().item() == pytest.approx(0.625, abs=0.05)  # hhat about 0: 0.5 + 0.125
    assert "clip_grad_norm_" in (IVON.__doc__ or "")


@pytest.mark.parametrize("unscale", [True, False])
@pytest.mark.parametrize("samples", [1, 2])
def test_trap_11_grad_scaler_is_undone_and_an_overflow_drops_the_step(unscale: bool, samples: int) -> None:
    scaled, plain = parameter(10), parameter(10)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    with_scaler, without = ivon([scaled]), ivon([plain])

    def scaled_step(factor: float) -> None:
        for _ in range(samples):
            block(with_scaler, lambda: scaler.scale(factor * scaled.square().sum()))
        if unscale:
            scaler.unscale_(with_scaler)
        scaler.step(with_scaler)
        scaler.update()

    for _ in range(samples):
        block(without, lambda: plain.square().sum())
    without.step()
    scaled_step(1.0)
    for ours, expected in zip(state_of(with_scaler, scaled), state_of(without, plain), strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-7)
    before = state_of(with_scaler, scaled)
    scaled_step(1e38)
    assert scaler.get_scale() == 512.0
    assert_same(before, state_of(with_scaler, scaled))
    scaled_step(1.0)
    assert all(value.isfinite().all() for value in state_of(with_scaler, scaled))
    assert not torch.equal(scaled, before[0])


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("samples", [1, 2])
@pytest.mark.parametrize("nonfinite", ["skip", "raise"])
def test_trap_12_nonfinite_gradient_never_reaches_the_state(bad: float, samples: int, nonfinite: str) -> None:
    weight, other = parameter(5), parameter(3, seed=1)
    opt = ivon([weight, other], nonfinite=nonfinite)
    block(opt, lambda: weight.square().sum() + other.square().sum())
    opt.step()
    before, steps = state_of(opt, weight, other), opt.state[weight]["step"]
    for sample in range(samples):
        factor = torch.ones(5).index_fill(0, torch.tensor(2), bad if sample == 0 else 1.0)
        block(opt, lambda factor=factor: (weight * factor).sum() + other.sum())
    if nonfinite == "raise":
        with pytest.raises(FloatingPointError, match=r"\(5,\)"):
            opt.step()
    else:
        opt.step()
    assert_same(before, state_of(opt, weight, other))
    assert opt.state[weight]["step"] == steps
    block(opt, lambda: weight.square().sum() + other.square().sum())
    opt.step()
    assert not torch.equal(weight, before[0])
    assert all(value.isfinite().all() for value in state_of(opt, weight, other))
