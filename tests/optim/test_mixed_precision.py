"""Loss scaling and autocast."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_

from tests.optim.contract import assert_same, in_block, mse, snapshot
from tests.optim.first_step import KWARGS, Samples, fresh, norm
from varlearn import IVON


@pytest.mark.parametrize("way", ["block", "two blocks", "mode"])
@pytest.mark.parametrize("unscale", [False, True], ids=["step alone", "unscale_"])
@pytest.mark.parametrize("approximation", ["reparam", "squared_gradient"])
def test_grad_scaler_is_invisible(way: str, unscale: bool, approximation: Any) -> None:
    """A scale that is a power of two changes no bit of a float32 run."""

    def run(scaler: torch.amp.GradScaler) -> dict[str, Any]:
        model, opt = fresh(hess_approx=approximation)
        for index in range(3):
            if way == "mode":
                opt.train()
                opt.zero_grad()
                scaler.scale(mse(model, index)).backward()
            else:
                for part in range(2 if way == "two blocks" else 1):
                    in_block(opt, lambda batch=10 * part + index: scaler.scale(mse(model, batch)))
            if unscale:
                scaler.unscale_(opt)
            scaler.step(opt)
            scaler.update()
        assert not any(hasattr(opt, name) for name in ("grad_scale", "found_inf"))
        return snapshot(opt)

    scaled = run(torch.amp.GradScaler("cpu", init_scale=1024.0))
    plain = run(torch.amp.GradScaler("cpu", enabled=False))
    if way == "two blocks":  # hhat follows the gradient by a ratio of norms
        for one, other in zip(scaled["state"], plain["state"], strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    else:
        assert_same(scaled, plain)


@pytest.mark.parametrize("unscale", [False, True], ids=["step alone", "unscale_"])
def test_clipping_under_a_grad_scaler(unscale: bool) -> None:
    """unscale_ and clip_grad_norm_, or max_grad_norm without either."""
    model, opt = fresh(max_grad_norm=None if unscale else 0.1)
    samples = Samples(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=512.0)
    with opt.sampled_params(train=True):
        loss = mse(model)
        samples.record(loss)
        scaler.scale(loss).backward()
    if unscale:
        scaler.unscale_(opt)
        clip_grad_norm_(model.parameters(), 0.1)
    scaler.step(opt)
    factor = 0.1 / (norm(samples.grads[0]) + 1e-6)
    samples.check(opt, factor, hess_factor=factor if unscale else 1.0)


@pytest.mark.parametrize("count", [1, 2], ids=["one sample", "two samples"])
@pytest.mark.parametrize("unscale", [False, True], ids=["step alone", "unscale_"])
def test_an_overflow_drops_the_step_and_training_goes_on(unscale: bool, count: int) -> None:
    model, opt = fresh()
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    before = snapshot(opt)["weights"]
    for index in range(count):
        in_block(opt, lambda index=index: scaler.scale(mse(model)) * (float("inf") if index == 0 else 1.0))
    if unscale:
        scaler.unscale_(opt)
    scaler.step(opt)
    scaler.update()
    assert scaler.get_scale() == 512.0
    assert opt.skipped_steps == 1
    assert_same(before, snapshot(opt)["weights"])
    assert all(state["step"] == 0 and not state["momentum"].any() for state in opt.state.values())
    in_block(opt, lambda: scaler.scale(mse(model)))
    scaler.step(opt)
    scaler.update()
    assert scaler.get_scale() == 512.0
    assert all(state["step"] == 1 for state in opt.state.values())
    assert all(bool(param.isfinite().all()) for param in model.parameters())


def test_autocast_trains_in_bfloat16() -> None:
    model, opt = fresh()
    before = mse(model).item()
    for _ in range(30):
        with opt.sampled_params(train=True):
            opt.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                loss = mse(model)
            loss.backward()
        opt.step()
    assert mse(model).item() < 0.8 * before
    assert {param.dtype for param in model.parameters()} == {torch.float32}


def test_samples_inside_one_autocast_region_are_seen() -> None:
    """Autocast keeps the weights it has cast until its region ends; a new sample must not meet the old ones."""
    model = nn.Linear(3, 2)
    opt = IVON(model.parameters(), **KWARGS)
    inputs = torch.ones(1, 3)
    with torch.autocast("cpu", torch.bfloat16):
        at_mean = model(inputs)
        outputs = []
        for _ in range(2):
            with opt.sampled_params():
                outputs.append(model(inputs))
        again = model(inputs)
    assert not torch.equal(outputs[0], at_mean)
    assert not torch.equal(outputs[0], outputs[1])
    assert torch.equal(again, at_mean)
