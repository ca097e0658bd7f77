"""The rule of variational AdamW: its step is PyTorch's AdamW's, its variance is the formula's."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from tests.reference.vadamw import Settings, VariationalAdamW
from varlearn.core import vadamw
from varlearn.core.vadamw import Hyper, Moments

HYPER = {"lr": 0.1, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8}


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_step_is_that_of_adamw_bit_for_bit(decay: float, dtype: torch.dtype) -> None:
    weight = nn.Parameter(torch.randn(7, dtype=dtype))
    betas = HYPER["beta1"], HYPER["beta2"]
    adamw = torch.optim.AdamW([weight], lr=0.1, betas=betas, weight_decay=decay, foreach=False, fused=False)
    q = Moments(weight.detach().clone(), torch.zeros(7, dtype=dtype), torch.zeros(7, dtype=dtype))
    for t in range(1, 21):
        weight.grad = torch.randn(7, dtype=dtype)
        adamw.step()
        q = vadamw.step(q, weight.grad, weight.grad, Hyper(**HYPER, weight_decay=decay, step=t))
        assert torch.equal(q.mean, weight.detach())
        assert torch.equal(q.exp_avg, adamw.state[weight]["exp_avg"])
        assert torch.equal(q.exp_avg_sq, adamw.state[weight]["exp_avg_sq"])


def test_step_and_variance_are_those_of_the_reference() -> None:
    settings = Settings(n=50.0, batch=4.0, lr=0.1, beta2=0.95, decay=0.1)
    start = np.random.default_rng(0).normal(size=(3, 4))
    reference = VariationalAdamW([start], settings)
    q = Moments(torch.tensor(start), torch.zeros(3, 4).double(), torch.zeros(3, 4).double())
    for t in range(1, 21):
        grad, unclipped = (np.random.default_rng(10 * t + k).normal(size=(3, 4)) for k in (0, 1))
        reference.step([grad], [unclipped])
        hyper = Hyper(**HYPER, weight_decay=0.1, step=t)
        q = vadamw.step(q, torch.tensor(grad), torch.tensor(unclipped), hyper)
        np.testing.assert_allclose(q.mean.numpy(), reference.m[0], rtol=1e-12)
        scale = vadamw.scale(reference.ess(), settings.batch, settings.beta2, t, reference.s[0])
        np.testing.assert_allclose(vadamw.std(q.exp_avg_sq, *scale).numpy(), reference.sigma(0), rtol=1e-12)


def test_without_curvature_sigma_is_the_prior_width_and_before_the_first_step_zero() -> None:
    v = torch.zeros(2)
    for ess in (1.0, 1e12):
        torch.testing.assert_close(vadamw.std(v, *vadamw.scale(ess, 10.0, 0.999, 5, 0.3)), torch.full((2,), 0.3))
    assert torch.equal(vadamw.std(v, *vadamw.scale(100.0, 10.0, 0.999, 0, 0.3)), v)


def test_an_ess_without_bound_leaves_no_noise_and_no_nan() -> None:
    v = torch.tensor([0.0, 1e-30, 1.0])
    assert torch.equal(vadamw.std(v, *vadamw.scale(1e300, 10.0, 0.999, 5, 1e-12)), torch.zeros(3))


def test_scales_of_several_parameters_as_tensors() -> None:
    v, pairs = torch.rand(4), [vadamw.scale(10.0, 2.0, 0.9, 3, s) for s in (0.1, 0.2, 0.3, 0.4)]
    ess, decay = (torch.tensor(values) for values in zip(*pairs, strict=True))
    expected = torch.cat([vadamw.std(each[None], *pair) for each, pair in zip(v, pairs, strict=True)])
    torch.testing.assert_close(vadamw.std(v, ess, decay), expected)
    assert math.isclose(float(vadamw.std(torch.zeros(1), *pairs[0])), 0.1, rel_tol=1e-6)
