"""FRN and TLU against loops over the formula in float64."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from varlearn.models import FilterResponseNorm


def loops(x, gamma, beta, tau, eps):
    """max(gamma x / sqrt(mean_HW(x^2) + eps) + beta, tau), one number at a time."""
    out = np.empty_like(x)
    for b, c in np.ndindex(x.shape[:2]):
        mean_square = sum(value * value for value in x[b, c].flat) / x[b, c].size
        for h, w in np.ndindex(x.shape[2:]):
            y = gamma[c] * x[b, c, h, w] / math.sqrt(mean_square + eps) + beta[c]
            out[b, c, h, w] = max(y, tau[c])
    return out


def layer(channels, dtype=torch.float64, **options):
    """With weights that are not those of the start."""
    frn = FilterResponseNorm(channels, **options).to(dtype)
    with torch.no_grad():
        for parameter in frn.parameters():
            parameter.normal_()
    return frn


@given(
    shape=st.tuples(*(st.integers(1, 4) for _ in range(4))),
    scale=st.sampled_from([1e-4, 1.0, 1e4]),
    eps=st.sampled_from([1e-6, 1e-2]),
    seed=st.integers(0, 2**16),
)
def test_equals_the_formula(shape, scale, eps, seed):
    torch.manual_seed(seed)
    frn = layer(shape[1], eps=eps)
    x = scale * torch.randn(shape, dtype=torch.float64)
    weights = (weight.detach().numpy().ravel() for weight in (frn.gamma, frn.beta, frn.tau))
    np.testing.assert_allclose(frn(x).detach().numpy(), loops(x.numpy(), *weights, eps), rtol=1e-12, atol=1e-12)


def test_starts_as_the_identity_of_its_weights():
    frn = FilterResponseNorm(5)
    assert frn.eps == 1e-6
    for weight, value in ((frn.gamma, 1.0), (frn.beta, 0.0), (frn.tau, 0.0)):
        assert weight.shape == (1, 5, 1, 1)
        assert (weight == value).all()


def test_gradients():
    frn = layer(3)
    x = torch.randn(2, 3, 4, 3, dtype=torch.float64, requires_grad=True)

    def function(x, gamma, beta, tau):
        return torch.func.functional_call(frn, {"gamma": gamma, "beta": beta, "tau": tau}, (x,))

    arguments = (x, frn.gamma, frn.beta, frn.tau)
    assert torch.autograd.gradcheck(function, arguments)
    assert torch.autograd.gradgradcheck(function, arguments)
    assert torch.autograd.gradcheck(function, arguments, check_forward_ad=True, check_backward_ad=False)


def test_scale_of_the_input_does_not_matter():
    frn, x = layer(3), torch.randn(2, 3, 8, 8, dtype=torch.float64)
    torch.testing.assert_close(frn(1000 * x), frn(x), rtol=1e-5, atol=1e-5)
    assert not torch.allclose(frn(-x), frn(x))


def test_zeros_give_beta_or_tau_and_finite_gradients():
    frn, x = layer(4), torch.zeros(2, 4, 3, 3, dtype=torch.float64, requires_grad=True)
    out = frn(x)
    torch.testing.assert_close(out, torch.maximum(frn.beta, frn.tau).expand_as(out))
    out.sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_low_precision_keeps_its_dtype_and_its_range(dtype):
    x = torch.tensor([3e4, -3e4], dtype=dtype).view(1, 1, 1, 2)  # the squares are beyond float16
    for frn in (FilterResponseNorm(1), FilterResponseNorm(1).to(dtype)):
        out = frn(x)
        assert out.dtype == dtype
        torch.testing.assert_close(out.float().flatten(), torch.tensor([1.0, 0.0]), rtol=0, atol=0)


def test_memory_format_is_kept():
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last).requires_grad_()
    out = FilterResponseNorm(3)(x)
    assert out.is_contiguous(memory_format=torch.channels_last)
    (gradient,) = torch.autograd.grad(out, x, torch.ones_like(out))
    assert gradient.is_contiguous(memory_format=torch.channels_last)


def test_prints_its_size():
    assert repr(FilterResponseNorm(7)) == "FilterResponseNorm(7, eps=1e-06)"
