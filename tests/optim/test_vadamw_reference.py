"""Variational AdamW against its NumPy reference at each of 100 steps, and against AdamW where the noise is gone."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.optim.contract import PATHS, TinyNet, assert_same, in_block, mse, weights
from tests.reference.vadamw import Array, Settings, VariationalAdamW
from varlearn.core.noise import fold_in, normal_
from varlearn.optim import VAdamW

STEPS = 100
LIMIT = {torch.float64: 1e-11, torch.float32: 3e-5}  # of the largest entry; rounding adds up over the steps


def numbers(tensor: Tensor) -> Array:
    return tensor.detach().double().numpy().copy()


def noise(opt: VAdamW, index: int, param: Tensor) -> Array:
    """What the next training sample adds to a parameter, in units of sigma."""
    key = fold_in(opt._noise(opt.param_groups[0], train=True).key, index)
    return numbers(normal_(torch.empty(param.numel(), dtype=param.dtype), key)).reshape(tuple(param.shape))


def close(name: str, step: int, ours: Tensor, theirs: Array, limit: float) -> None:
    scale = float(np.abs(theirs).max())
    worst = float(np.abs(numbers(ours) - theirs).max())
    assert worst <= limit * max(scale, 1e-3), f"{name} at step {step}: off by {worst:.2e}, scale {scale:.2e}"


VARIANTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "several samples": ({}, {"samples": 3}),
    "constant ess": ({"ess": 500.0}, {"ess": lambda passes: 500.0}),
    "schedule": ({"ess": lambda passes: 100.0 + passes}, {"ess": lambda passes: 100.0 + passes}),
    "prior width": ({"prior_width": 0.2}, {"width": 0.2}),
    "maximize": ({"maximize": True}, {"maximize": True}),
    "no decay": ({"weight_decay": 0.0}, {"decay": 0.0}),
    "eps": ({"eps": 1e-2}, {"eps": 1e-2}),
    "lean": ({"memory": "lean"}, {}),
}


def runs() -> Iterator[tuple[torch.dtype, str, str]]:
    """Every variant in the loop in float64 and in the engine with kernels, which is for float32; some elsewhere."""
    for name in VARIANTS:
        yield torch.float64, name, "loop"
        yield torch.float32, name, "fused"
    for name in ("plain", "several samples", "lean"):
        yield torch.float64, name, "foreach"
        yield torch.float32, name, "foreach"
    yield torch.float32, "plain", "loop"


@pytest.mark.parametrize(("dtype", "name", "path"), list(runs()), ids=str)
def test_every_step_is_that_of_the_reference(dtype: torch.dtype, name: str, path: str) -> None:
    """100 steps of 8 of 60 examples: annealing ends at step 75. One matrix grows, so that its prior widens."""
    options, theirs = VARIANTS[name]
    theirs = dict(theirs)
    samples, sign = theirs.pop("samples", 1), -1.0 if name == "maximize" else 1.0
    model = TinyNet(dtype)
    params = list(model.parameters())
    opt = VAdamW(params, 0.02, n=60, batch_size=8, betas=(0.8, 0.95), seed=3, **options, **PATHS[path])
    settings = Settings(60.0, 8.0, lr=0.02, beta1=0.8, beta2=0.95, **theirs)
    reference = VariationalAdamW([numbers(param) for param in params], settings)
    # In float32 the two paths would part by chaos; from equal states each step shows its own error.
    for step in range(STEPS):
        grads: list[list[Array]] = []
        for _ in range(samples):
            expected = [reference.sample(k, noise(opt, k, param)) for k, param in enumerate(params)]
            with opt.sampled_params(train=True):
                opt.zero_grad()
                for k, param in enumerate(params):
                    close(f"sample of {k}", step, param, expected[k], LIMIT[dtype])
                (sign * mse(model, step)).backward()
                grads.append([numbers(param.grad) for param in params if param.grad is not None])
        opt.step()
        reference.step([np.mean(each, axis=0) for each in zip(*grads, strict=True)])
        for k, param in enumerate(params):
            state = opt.state[param]
            assert (state["step"], opt.param_groups[0]["ess"]) == (reference.t, pytest.approx(reference.ess()))
            assert state["prior_std"] == pytest.approx(reference.s[k], rel=1e-5)
            close(f"mean of {k}", step, param, reference.m[k], LIMIT[dtype])
            close(f"exp_avg of {k}", step, state["exp_avg"], reference.g[k], LIMIT[dtype])
            close(f"exp_avg_sq of {k}", step, state["exp_avg_sq"], reference.v[k], LIMIT[dtype])
            if dtype == torch.float32:
                reference.m[k] = numbers(param)
                reference.g[k], reference.v[k] = numbers(state["exp_avg"]), numbers(state["exp_avg_sq"])


def test_the_lengths_of_the_run_cover_what_it_claims() -> None:
    """Annealing ends, and a prior widens, within the 100 steps of the comparison."""
    model = TinyNet()
    opt = VAdamW(model.parameters(), 0.02, n=60, batch_size=8, seed=3)
    in_block(opt, lambda: mse(model, 0))
    first = [opt.state[param]["prior_std"] for param in model.parameters()]
    for step in range(STEPS):
        in_block(opt, lambda step=step: mse(model, step))
        opt.step()
    assert opt.param_groups[0]["ess"] == 60.0
    assert any(opt.state[p]["prior_std"] > s for p, s in zip(model.parameters(), first, strict=True))


@pytest.mark.parametrize("path", ["loop", "foreach", "fused"])
@pytest.mark.parametrize(
    "options", [{}, {"weight_decay": 0.1}, {"weight_decay": 0.0}, {"maximize": True}, {"betas": (0.5, 0.9)}], ids=str
)
def test_with_an_infinite_sample_size_it_is_adamw(path: str, options: dict[str, Any]) -> None:
    """The loop bit for bit, with a schedule of the learning rate; other engines to 1e-6."""
    model, other = TinyNet(), TinyNet()
    opt = VAdamW(model.parameters(), 0.01, n=8, batch_size=8, ess=1e300, prior_width=1e-30, **options, **PATHS[path])
    adamw = torch.optim.AdamW(other.parameters(), 0.01, foreach=False, fused=False, **options)
    schedules = [torch.optim.lr_scheduler.CosineAnnealingLR(each, STEPS) for each in (opt, adamw)]
    for step in range(STEPS):
        in_block(opt, lambda step=step: mse(model, step))
        adamw.zero_grad()
        mse(other, step).backward()
        for optimizer, schedule in zip((opt, adamw), schedules, strict=True):
            optimizer.step()
            schedule.step()
        if path == "loop":
            assert_same(weights(model), weights(other))
        else:
            for ours, theirs in zip(weights(model), weights(other), strict=True):
                torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)
    assert not torch.equal(model.first.weight, TinyNet().first.weight)
    for ours, theirs in zip(model.parameters(), other.parameters(), strict=True):
        if path == "loop":
            assert torch.equal(opt.state[ours]["exp_avg_sq"], adamw.state[theirs]["exp_avg_sq"])


def test_a_weight_without_gradient_keeps_the_width_of_the_prior() -> None:
    """A row of an embedding that no batch meets."""
    table = nn.Embedding(5, 2)
    size = float(table.weight.detach().square().mean().sqrt())
    opt = VAdamW.for_model(table, 0.1, n=10, batch_size=1, seed=0)
    for _ in range(5):
        in_block(opt, lambda: table(torch.tensor([1])).sum())
        opt.step()
    hess, ess, delta = opt.posterior_terms(table.weight)
    sigma = (ess * (hess + delta)).rsqrt()
    rms = opt.state[table.weight]["prior_rms"]
    assert rms == pytest.approx(size)
    assert sigma[0].tolist() == pytest.approx([rms, rms], rel=1e-5)
    assert bool((sigma[1] < rms).all())
