"""What happens to gradients between backward and step: clipping and accumulation."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_

from tests.optim.contract import in_block, mse
from tests.optim.first_step import BETA1, KWARGS, Samples, fresh, norm
from varlearn import IVON

# Clipping


@pytest.mark.parametrize("count", [1, 3], ids=["one sample", "three samples"])
def test_clip_grad_norm_after_the_block_scales_ghat_and_hhat(count: int) -> None:
    model, opt = fresh()
    samples = Samples(model)
    for index in range(count):
        with opt.sampled_params(train=True):
            opt.zero_grad()
            loss = mse(model, index)
            samples.record(loss)
            loss.backward()
    mean_grad = [torch.stack(grads).mean(0) for grads in zip(*samples.grads, strict=True)]
    total = clip_grad_norm_(model.parameters(), 0.1)
    assert float(total) == pytest.approx(norm(mean_grad), rel=1e-4)  # p.grad is the mean gradient
    opt.step()
    samples.check(opt, factor=0.1 / (norm(mean_grad) + 1e-6))


@pytest.mark.parametrize("count", [1, 3], ids=["one sample", "three samples"])
def test_max_grad_norm_scales_ghat_alone(count: int) -> None:
    model, opt = fresh(max_grad_norm=0.1)
    samples = Samples(model)
    samples.take(opt, model, count)
    mean_grad = [torch.stack(grads).mean(0) for grads in zip(*samples.grads, strict=True)]
    opt.step()
    samples.check(opt, factor=0.1 / (norm(mean_grad) + 1e-6), hess_factor=1.0)


def test_the_norm_is_divided_by_as_pytorch_does() -> None:
    """max / (norm + 1e-6)."""
    ours, theirs = (nn.Parameter(torch.ones(2, dtype=torch.float64)) for _ in range(2))
    opt = IVON([ours], max_grad_norm=1e-6, **KWARGS)
    in_block(opt, lambda: (2e-6 * ours[0]).sum())
    opt.step()
    (2e-6 * theirs[0]).backward()
    clip_grad_norm_([theirs], 1e-6)
    assert theirs.grad is not None
    torch.testing.assert_close(opt.state[ours]["momentum"], (1 - BETA1) * theirs.grad, rtol=1e-6, atol=0.0)


def test_max_grad_norm_in_float16_where_the_norm_overflows() -> None:
    weight = nn.Parameter(torch.zeros(10_000, dtype=torch.float16))
    opt = IVON([weight], max_grad_norm=1.0, **KWARGS)
    in_block(opt, lambda: (weight * 1000.0).sum())  # a gradient of norm 10^5, above float16's largest number
    opt.step()
    momentum = opt.state[weight]["momentum"]
    torch.testing.assert_close(momentum, torch.full_like(momentum, (1 - BETA1) * 0.01), rtol=1e-3, atol=0.0)


def test_clip_grad_value_after_the_block() -> None:
    model, opt = fresh()
    samples = Samples(model)
    with opt.sampled_params(train=True):
        loss = mse(model)
        samples.record(loss)
        loss.backward()
    clip_grad_value_(model.parameters(), 0.05)
    opt.step()
    samples.grads = [[grad.clamp(-0.05, 0.05) for grad in samples.grads[0]]]
    samples.check(opt)


def halve_in_place(param: nn.Parameter) -> None:
    assert param.grad is not None
    param.grad.mul_(0.5)


def halve_through_data(param: nn.Parameter) -> None:
    assert param.grad is not None
    param.grad.data.mul_(0.5)


def halve_by_assignment(param: nn.Parameter) -> None:
    assert param.grad is not None
    param.grad = param.grad * 0.5


@pytest.mark.parametrize("halve", [halve_in_place, halve_through_data, halve_by_assignment])
@pytest.mark.parametrize("count", [1, 2], ids=["one sample", "two samples"])
def test_gradients_scaled_by_hand_between_block_and_step(halve: Callable[[nn.Parameter], None], count: int) -> None:
    model, opt = fresh()
    samples = Samples(model)
    samples.take(opt, model, count)
    for param in model.parameters():
        halve(param)
    opt.step()
    samples.check(opt, factor=0.5)


# Accumulation


@pytest.mark.parametrize("zero_grad", ["never", "before", "inside", "after", "after, in place", "everywhere"])
def test_blocks_are_averaged_wherever_zero_grad_stands(zero_grad: str) -> None:
    model, opt = fresh()
    samples = Samples(model)
    for index in range(4):
        if zero_grad in ("before", "everywhere"):
            opt.zero_grad()
        with opt.sampled_params(train=True):
            if zero_grad in ("inside", "everywhere"):
                opt.zero_grad()
            loss = mse(model, index)
            samples.record(loss)
            loss.backward()
        if zero_grad in ("after", "after, in place", "everywhere"):
            opt.zero_grad(set_to_none="place" not in zero_grad)
    opt.step()
    samples.check(opt)
    assert all(opt.state[param]["step"] == 1 for param in model.parameters())


@pytest.mark.parametrize("mode", [False, True], ids=["block", "train()"])
def test_micro_batches_of_one_sample_are_the_large_batch(mode: bool) -> None:
    """Four micro-batches with the loss divided by four, at one sample."""
    model, opt = fresh()
    samples = Samples(model)

    def micro_batches() -> None:
        total = torch.zeros(())
        for index in range(4):
            if mode:
                opt.train()
            total = total + mse(model, index) / 4
        samples.record(total)
        for index in range(4):
            (mse(model, index) / 4).backward()

    if mode:
        opt.zero_grad()
        micro_batches()
    else:
        with opt.sampled_params(train=True):
            opt.zero_grad()
            micro_batches()
    opt.step()
    samples.check(opt)


def test_a_loss_that_misses_a_parameter_in_one_sample_has_gradient_zero_there() -> None:
    first, second = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    opt = IVON([first, second], **KWARGS)
    in_block(opt, lambda: first.sum())
    in_block(opt, lambda: first.sum() + second.sum())
    opt.step()
    torch.testing.assert_close(opt.state[first]["momentum"], torch.full((2,), 0.1))
    torch.testing.assert_close(opt.state[second]["momentum"], torch.full((2,), 0.05))
