"""Gradients that are clipped for variational AdamW's mean do not enter its variance."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

from tests.optim.contract import PATHS, in_block, mse
from tests.optim.test_vadamw import fresh, train
from varlearn.optim import VAdamW


def after_a_block(model: nn.Module, opt: VAdamW, clip: Callable[[], Any]) -> None:
    in_block(opt, lambda: mse(model))
    clip()
    opt.step()


def inside_a_block(model: nn.Module, opt: VAdamW, clip: Callable[[], Any]) -> None:
    with opt.sampled_params(train=True):
        opt.zero_grad()
        mse(model).backward()
        clip()
    opt.step()


def in_modes(model: nn.Module, opt: VAdamW, clip: Callable[[], Any]) -> None:
    opt.train()
    opt.zero_grad()
    for index in range(2):
        (mse(model, index) / 2).backward()
    clip()
    opt.step()


def in_a_closure(model: nn.Module, opt: VAdamW, clip: Callable[[], Any]) -> None:
    def closure() -> Tensor:
        opt.zero_grad()
        loss = mse(model)
        loss.backward()
        clip()
        return loss

    opt.step(closure)


def micro_batches(model: nn.Module, opt: VAdamW, clip: Callable[[], Any]) -> None:
    with opt.sampled_params(train=True):
        opt.zero_grad()
        for index in range(3):
            (mse(model, index) / 3).backward()
    clip()
    opt.step()


def two_blocks(model: nn.Module, opt: VAdamW, clip: Callable[[], Any]) -> None:
    for index in range(2):
        in_block(opt, lambda index=index: mse(model, index))
    clip()
    opt.step()


@pytest.mark.parametrize("path", ["loop", "foreach", "fused"])
@pytest.mark.parametrize("way", [after_a_block, inside_a_block, in_modes, in_a_closure, micro_batches, two_blocks])
def test_a_clipped_gradient_enters_the_mean_and_not_the_variance(way: Callable[..., None], path: str) -> None:
    """Three steps from equal weights each, so that the clipped and the free run see the same gradients."""
    (free_model, free), (model, opt) = (fresh(**PATHS[path]) for _ in range(2))
    for _ in range(3):
        totals: list[float] = []
        way(free_model, free, lambda: None)
        way(model, opt, lambda: totals.append(float(clip_grad_norm_(model.parameters(), 0.05))))  # noqa: B023
        assert totals[0] > 0.1
        for ours, theirs in zip(model.parameters(), free_model.parameters(), strict=True):
            mine, other = opt.state[ours], free.state[theirs]
            torch.testing.assert_close(mine["exp_avg_sq"], other["exp_avg_sq"], rtol=2e-6, atol=1e-12)
            expected = other["exp_avg"] * (0.05 / totals[0])
            if mine["step"] == 1:
                torch.testing.assert_close(mine["exp_avg"], expected, rtol=1e-4, atol=1e-9)
            with torch.no_grad():
                theirs.copy_(ours)
            other["exp_avg_sq"].copy_(mine["exp_avg_sq"])
            other["prior_std"] = mine["prior_std"]


@pytest.mark.parametrize("path", ["loop", "foreach", "fused"])
def test_max_grad_norm_clips_the_mean_alone(path: str) -> None:
    (free_model, free), (model, opt) = fresh(**PATHS[path]), fresh(max_grad_norm=0.05, **PATHS[path])
    train(free_model, free, range(1))
    train(model, opt, range(1))
    for ours, theirs in zip(model.parameters(), free_model.parameters(), strict=True):
        assert torch.equal(opt.state[ours]["exp_avg_sq"], free.state[theirs]["exp_avg_sq"])
        ratio = opt.state[ours]["exp_avg"].norm() / free.state[theirs]["exp_avg"].norm()
        assert float(ratio) < 0.2


def test_the_unscaling_of_gradients_is_no_clipping() -> None:
    """GradScaler's `unscale_` divides by 65,536 between backward and step."""
    (plain_model, plain), (model, opt) = fresh(), fresh()
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for step in range(3):
        in_block(plain, lambda step=step: mse(plain_model, step))
        plain.step()
        in_block(opt, lambda step=step: scaler.scale(mse(model, step)))
        if step:  # at the first step the optimizer unscales by itself
            scaler.unscale_(opt)
        scaler.step(opt)
        scaler.update()
    for ours, theirs in zip(model.parameters(), plain_model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)
        torch.testing.assert_close(opt.state[ours]["exp_avg_sq"], plain.state[theirs]["exp_avg_sq"])
