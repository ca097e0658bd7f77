"""Traps 13 to 24 that other implementations of IVON fall into, one test each."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.optim.peak_memory import peak_memory
from tests.optim.ranks import two_processes
from tests.optim.trap_helpers import assert_same, block, ivon, parameter, state_of
from tests.reference.algorithm1 import Algorithm1, Settings
from varlearn import IVON
from varlearn.batchnorm import recalibrate_batchnorm


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What two gloo processes with equal seeds saw, rank by rank."""
    return two_processes.run(tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_trap_13_low_precision_parameters_have_a_float32_state_that_moves(dtype: torch.dtype) -> None:
    weight, full = (nn.Parameter(torch.ones(100, dtype=kind)) for kind in (dtype, torch.float32))
    optimizers = [ivon([p], betas=(0.9, 0.99999), lr=1e-3) for p in (weight, full)]
    for _ in range(30):
        for opt, param in zip(optimizers, (weight, full), strict=True):
            block(opt, lambda param=param: (3.0 * param).sum())
            opt.step()
    low, high = optimizers[0].state[weight], optimizers[1].state[full]
    assert low["hess"].dtype == low["momentum"].dtype == low["mean"].dtype == torch.float32
    assert (low["hess"] != 1.0).all()
    # Thirty steps of 0.003 are lost in bfloat16 one by one, and kept by the float32 mean.
    torch.testing.assert_close(low["hess"], high["hess"], rtol=1e-6, atol=0.0)
    torch.testing.assert_close(low["mean"], full.detach(), rtol=1e-5, atol=0.0)
    assert torch.equal(weight, low["mean"].to(dtype))


def test_trap_14_mixed_dtypes_train_together_as_they_do_alone() -> None:
    dtypes = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
    together = [parameter(6, dtype=dtype) for dtype in dtypes]
    opt = ivon(together)
    for _ in range(3):
        block(opt, lambda: sum(p.double().square().sum() for p in together))  # type: ignore[arg-type, return-value]
        opt.step()
    for position, (dtype, param) in enumerate(zip(dtypes, together, strict=True)):
        alone = [parameter(6, dtype=dtype) for _ in range(position + 1)]  # the position decides the noise
        single = ivon(alone)
        for _ in range(3):
            block(single, lambda alone=alone: alone[-1].double().square().sum())
            single.step()
        assert_same(state_of(single, alone[-1]), state_of(opt, param))


def test_trap_15_add_param_group_works_before_and_after_steps() -> None:
    first, second, third = (parameter(3, seed=seed) for seed in range(3))
    opt = ivon([first])
    opt.add_param_group({"params": [second], "lr": 0.5, "ess": 1e6})
    block(opt, lambda: first.sum() + second.sum())
    opt.step()
    opt.add_param_group({"params": [third], "hess_init": 0.25})
    mean = third.detach().clone()
    block(opt, lambda: first.sum() + second.sum() + third.sum())
    opt.step()
    assert [opt.state[p]["step"] for p in (first, second, third)] == [2, 2, 1]
    assert opt.param_groups[1]["ess"] == 1e6
    # The first step of a parameter is debiased as such: lr * (h0 + delta) * (g + delta m) / (h + delta).
    hess = opt.state[third]["hess"]
    expected = mean - 0.1 * 0.26 * (1.0 + 0.01 * mean) / (hess + 0.01)
    torch.testing.assert_close(third.detach(), expected)


def test_trap_16_storage_strides_and_memory_format_are_kept() -> None:
    conv = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    storage = torch.randn(20)
    view = nn.Parameter(storage[4:16].view(3, 4).t())
    tied = nn.Linear(4, 4)
    params = [conv.weight, view, tied.weight]
    facts = [(p.data_ptr(), p.stride(), p.untyped_storage().data_ptr(), id(p.data.untyped_storage())) for p in params]
    margin = storage[[0, 1, 2, 3, 16, 17, 18, 19]].clone()
    opt = ivon(params)
    for _ in range(2):
        with opt.sampled_params(train=True):
            opt.zero_grad()
            assert [(p.data_ptr(), p.stride()) for p in params] == [fact[:2] for fact in facts]
            loss = conv(torch.randn(1, 3, 5, 5)).square().sum() + view.square().sum()
            (loss + tied(torch.ones(1, 4)).sum()).backward()
        opt.step()
    assert [(p.data_ptr(), p.stride(), p.untyped_storage().data_ptr()) for p in params] == [f[:3] for f in facts]
    assert conv.weight.is_contiguous(memory_format=torch.channels_last)
    assert opt.state[conv.weight]["hess"].is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(storage[[0, 1, 2, 3, 16, 17, 18, 19]], margin)
    assert torch.equal(storage[4:16].view(3, 4).t(), view.detach())


def test_trap_17_backward_outside_the_block_is_noticed() -> None:
    weight = parameter(4)
    opt = ivon([weight])
    block(opt, lambda: weight.square().sum())
    opt.step()
    before = state_of(opt, weight)
    with opt.sampled_params(train=True):
        opt.zero_grad()
        loss = weight.square().sum()
    loss = weight.square().sum()
    loss.backward()
    with pytest.raises(RuntimeError, match="outside the sampling block"):
        opt.step()
    assert_same(before, state_of(opt, weight))


def test_trap_18_noise_is_not_taken_from_the_global_generator(two_ranks: list[dict[str, Any]]) -> None:
    samples = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        weight = parameter(100)
        opt = ivon([weight], seed=7)
        before = torch.get_rng_state()
        with opt.sampled_params(train=True):
            samples.append(weight.detach().clone())
            weight.sum().backward()
        opt.step()
        assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(samples[0], samples[1])
    # Evaluating in between does not change what training draws.
    weight = parameter(100)
    opt = ivon([weight], seed=7)
    for _ in range(5):
        with opt.sampled_params():
            assert not torch.equal(weight, samples[0])
    with opt.sampled_params(train=True):
        assert torch.equal(weight, samples[0])
    # Ranks with equal seeds: independent samples, unless a common one is asked for.
    first, second = (rank["ddp"]["thetas"][0] for rank in two_ranks)
    assert not torch.isclose(first, second).any()
    first, second = (rank["shared"]["thetas"][0] for rank in two_ranks)
    assert torch.equal(first, second)


@pytest.mark.parametrize("variant", ["ddp", "ddp_two_samples", "ddp_no_sync", "averaged_by_hand", "shared"])
def test_trap_19_ddp_gives_the_mean_of_the_products(two_ranks: list[dict[str, Any]], variant: str) -> None:
    """Plain DistributedDataParallel: hhat is the mean over ranks and samples of g (theta - m) / sigma^2."""
    ranks = [rank[variant] for rank in two_ranks]
    assert torch.equal(ranks[0]["mean"], ranks[1]["mean"])
    assert torch.equal(ranks[0]["hess"], ranks[1]["hess"])
    reference = Algorithm1(ranks[0]["start"].numpy(), Settings(delta=0.01, beta2=0.9))
    for step in range(two_processes.STEPS):
        now = slice(step * ranks[0]["samples"], (step + 1) * ranks[0]["samples"])
        thetas = [theta.numpy() for rank in ranks for theta in rank["thetas"][now]]
        reference.step(thetas, [grad.numpy() for rank in ranks for grad in rank["grads"][now]])
    np.testing.assert_allclose(ranks[0]["momentum"].numpy(), reference.g, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(ranks[0]["hess"].numpy(), reference.h, rtol=1e-9)
    np.testing.assert_allclose(ranks[0]["mean"].numpy(), reference.m, rtol=1e-9)


def test_trap_19_guard_refuses_gradients_that_differ_between_ranks(two_ranks: list[dict[str, Any]]) -> None:
    for rank in two_ranks:
        assert "differ between ranks" in rank["not_averaged"]["error"]
        assert torch.equal(rank["not_averaged"]["mean"], rank["not_averaged"]["start"])


def test_trap_20_batchnorm_is_recalibrated_at_the_mean() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    inputs = torch.randn(64, 3)
    opt = ivon(model.parameters(), ess=1.0)  # sigma is about 1, so a sample is far from the mean
    block(opt, lambda: model(inputs).square().sum())
    opt.step()
    norm = model[1]
    hidden = model[0](inputs).detach()
    assert not torch.allclose(norm.running_mean, 0.1 * hidden.mean(0), rtol=0.1)
    model.eval()
    recalibrate_batchnorm(model, [(inputs, None)])
    torch.testing.assert_close(norm.running_mean, hidden.mean(0))
    torch.testing.assert_close(norm.running_var, hidden.var(0))
    assert not model.training
    assert norm.momentum == 0.1


def test_trap_21_a_step_uses_its_own_samples_and_none_is_not_zero() -> None:
    weight, sometimes = parameter(4), parameter(4, seed=1)
    opt = ivon([weight, sometimes], betas=(0.0, 0.9), weight_decay=0.5)
    block(opt, lambda: 5.0 * weight.sum() + sometimes.square().sum())
    opt.step()
    before = state_of(opt, sometimes)
    for factor in (1.0, 2.0, 3.0):
        block(opt, lambda factor=factor: factor * weight.sum())
        opt.step()
        assert (opt.state[weight]["momentum"] == factor).all()  # beta1 = 0: this step's gradient, not a lifetime's mean
    assert_same(before, state_of(opt, sometimes))
    assert opt.state[sometimes]["step"] == 1
    block(opt, lambda: weight.sum() + 0.0 * sometimes.sum())  # a zero gradient is a gradient
    opt.step()
    assert opt.state[sometimes]["step"] == 2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_trap_22_two_hundred_samples_leave_the_mean_bit_for_bit(dtype: torch.dtype) -> None:
    weight = parameter(1000, dtype=dtype)
    opt = ivon([weight], ess=1.0)
    mean = weight.detach().clone()
    for _ in range(100):
        with opt.sampled_params():
            pass
        with opt.sampled_params(train=True):
            pass
    assert torch.equal(weight, mean)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak memory from /proc")
@pytest.mark.bench  # a measurement of a whole process, which varies by a tenth of a vector
def test_trap_23_memory_is_near_adamw() -> None:
    """Parameters, gradient and two states are 4 vectors for both; IVON keeps the mean as well, unless it is lean."""
    adamw, fast, lean = (peak_memory(kind) for kind in ("adamw", "fast", "lean"))
    assert adamw > 4.0
    assert fast <= adamw + 1.5
    assert lean <= adamw + 0.5


def test_trap_24_bad_betas_and_estimators_are_named_in_the_message() -> None:
    weight = parameter(2)
    with pytest.raises(ValueError, match=r"beta1=1\.0 must be >= 0 and < 1"):
        ivon([weight], betas=(1.0, 0.9))
    with pytest.raises(ValueError, match=r"beta2=1\.0 must be >= 0 and < 1"):
        ivon([weight], betas=(0.9, 1.0))
    with pytest.raises(ValueError, match=r"beta1=1\.0"):
        IVON([{"params": [weight], "beta1": 1.0}], lr=0.1, ess=1.0)
    with pytest.raises(ValueError, match=r"hess_approx='hutchinson' must be one of .*'reparam'"):
        ivon([weight], hess_approx="hutchinson")
