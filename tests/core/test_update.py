"""Each line of Algorithm 1 (IVON) by itself: numbers worked out by hand, and its invariants for any finite input."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from varlearn.core import update
from varlearn.core.update import Gaussian, Hyper

F32, F64 = torch.float32, torch.float64
DTYPES = st.sampled_from([F32, F64])
BETAS = st.sampled_from([0.0, 0.1, 0.5, 0.9, 0.999, 0.99999, 1.0 - 1e-12])
DECAYS = st.one_of(st.just(0.0), st.floats(1e-12, 100.0))


def hyper(**changes: float) -> Hyper:
    defaults = {"lr": 0.1, "ess": 100.0, "weight_decay": 0.01, "beta1": 0.9, "beta2": 0.99}
    return Hyper(**{**defaults, "clip_radius": math.inf, "debias": 1.0, **changes})


def tensor(*values: float, dtype: torch.dtype = F64) -> Tensor:
    return torch.tensor(values, dtype=dtype)


def finite(dtype: torch.dtype) -> st.SearchStrategy[float]:
    """Any finite number of a dtype, the largest and the subnormal ones included."""
    return st.floats(allow_nan=False, allow_infinity=False, width=32 if dtype == F32 else 64)


@st.composite
def hessians(draw: st.DrawFn) -> tuple[Tensor, Tensor, float, float]:
    """(h, hhat, beta2, delta): h as a run may have left it, and any hhat that line 3 may make of a finite gradient."""
    dtype, decay = draw(DTYPES), draw(DECAYS)
    low, high = update.lowest_hess(decay, dtype), update.largest(dtype)
    near_zero = st.floats(-1.0, 1.0).map(lambda x: low + abs(x) * max(decay, 1e-3))
    hess = draw(st.one_of(st.floats(low, high), near_zero, st.floats(1e-6, 10.0)))
    hess_tensor = tensor(hess, dtype=dtype).clamp_(low, high)
    # The estimate that brings h + delta down most is the one with x = -1.
    worst = hess - (hess + decay) / (1.0 - draw(st.sampled_from([0.0, 0.5, 0.99, 0.99999])))
    estimate = draw(st.one_of(finite(dtype), st.just(worst)))
    return hess_tensor, update.saturate_(tensor(estimate, dtype=dtype)), draw(BETAS), decay


@given(hessians())
@settings(max_examples=200)
def test_precision_at_most_halves_in_a_step(case: tuple[Tensor, Tensor, float, float]) -> None:
    hess, estimate, beta2, decay = case
    old = hess.item() + decay
    new = update.update_hess(hess, estimate, beta2, decay).item() + decay
    # Four roundings of numbers no larger than |h| + delta, or than the result, each by half an ulp.
    tolerance = 4.0 * torch.finfo(hess.dtype).eps * (abs(hess.item()) + decay)
    assert new >= old / 2 - tolerance


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("decay", [0.0, 1e-4, 10.0])
@pytest.mark.parametrize("beta2", [0.0, 0.9, 0.99999])
def test_precision_at_most_halves_around_the_worst_estimate(dtype: torch.dtype, decay: float, beta2: float) -> None:
    generator = torch.Generator().manual_seed(0)
    precision = torch.logspace(-12, 12, 2000, dtype=F64)[:, None]  # h + delta
    x = -1.0 + torch.randn(500, generator=generator, dtype=F64) * torch.logspace(-8, 1, 500, dtype=F64)
    hess = (precision - decay).to(dtype).clamp_(update.lowest_hess(decay, dtype))
    estimate = (hess.double() + x * (hess.double() + decay) / (1.0 - beta2)).to(dtype)  # (2000, 500)
    new = update.update_hess(hess.expand_as(estimate), estimate, beta2, decay)
    tolerance = 4.0 * torch.finfo(dtype).eps * (hess.double().abs() + decay)
    assert (new.double() + decay >= (hess.double() + decay) / 2 - tolerance).all()


@given(hessians())
@settings(max_examples=200)
def test_hessian_stays_finite_and_gives_a_positive_finite_std(case: tuple[Tensor, Tensor, float, float]) -> None:
    hess, estimate, beta2, decay = case
    new = update.update_hess(hess, estimate, beta2, decay)
    assert new.isfinite()
    assert (new + decay) > 0.0
    for ess in (1e-3, 1.0, 1.3e6, 1e12):
        std = update.std(new, ess, decay)
        assert std.isfinite()
        assert std > 0.0


@given(st.data())
@settings(max_examples=200)
def test_step_from_any_sound_state_with_any_finite_gradient_is_finite(data: st.DataObject) -> None:
    dtype = data.draw(DTYPES)
    decay, beta1, beta2 = data.draw(DECAYS), data.draw(BETAS), data.draw(BETAS)
    numbers = finite(dtype)
    bound = update.largest(dtype) / max(1.0, decay)
    mean = tensor(data.draw(st.floats(-bound, bound)), dtype=dtype).clamp_(-bound, bound)
    low = update.lowest_hess(decay, dtype)
    hess = tensor(data.draw(st.floats(low, update.largest(dtype))), dtype=dtype).clamp_(low)
    momentum, grad, noise = (tensor(data.draw(n), dtype=dtype) for n in (numbers, numbers, st.floats(-6.66, 6.66)))
    scalars = hyper(
        lr=data.draw(st.floats(0.0, 1e3)),
        weight_decay=decay,
        beta1=beta1,
        beta2=beta2,
        clip_radius=data.draw(st.sampled_from([math.inf, 1e-3])),
        debias=1.0 - beta1 ** data.draw(st.integers(1, 1000)),
    )
    std = update.std(hess, scalars.ess, decay)
    for estimate in (update.hess_reparam(grad, update.score(noise, std)), update.hess_squared_gradient(grad)):
        after = update.step(Gaussian(mean, momentum, hess), grad, estimate, scalars)
        assert all(value.isfinite().all() for value in after), after
        assert update.std(after.hess, scalars.ess, decay).isfinite()
        assert (after.hess + decay) > 0.0


def test_hessian_may_be_negative_and_the_precision_is_not() -> None:
    hess = update.update_hess(tensor(0.0), tensor(-1.0), beta2=0.9, weight_decay=0.1)
    # x = 0.1 * (-1) / 0.1 = -1: the precision 0.1 halves, so h = -0.05.
    assert hess.item() == pytest.approx(-0.05, abs=1e-15)
    assert update.std(hess, 1.0, 0.1).item() == pytest.approx(math.sqrt(20.0))


def test_correction_divides_by_the_old_precision() -> None:
    # h = 1, hhat = 3, beta2 = 0.5, delta = 1: 0.5 + 1.5 + 0.5 * 0.25 * 4 / 2 = 2.25.
    assert update.update_hess(tensor(1.0), tensor(3.0), 0.5, 1.0).item() == 2.25


def test_only_momentum_is_debiased_and_decay_joins_after() -> None:
    # gbar = 0.1 / 0.1 = 1; (1 + 0.5 * 2) / (1.5 + 0.5) = 1; m = 2 - 0.25.
    scalars = hyper(lr=0.25, weight_decay=0.5, debias=0.1)
    assert update.update_mean(tensor(2.0), tensor(0.1), tensor(1.5), scalars).item() == pytest.approx(1.75)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_clip_is_inside_the_learning_rate_and_includes_decay(sign: float) -> None:
    # (1 + 3) / 1 = 4 is clipped to 0.5, and then multiplied by lr = 10.
    scalars = hyper(lr=10.0, weight_decay=0.5, clip_radius=0.5)
    moved = update.update_mean(tensor(6.0 * sign), tensor(1.0 * sign), tensor(0.5), scalars)
    assert moved.item() == sign * 1.0


def test_mean_moves_with_the_new_hessian() -> None:
    before = Gaussian(tensor(1.0), tensor(0.0), tensor(1.0))
    scalars = hyper(lr=1.0, weight_decay=0.0, beta1=0.0, beta2=0.0)
    # hhat = 3: h = 3 + 0.5 * 4 / 1 = 5; m = 1 - 10 / 5.
    after = update.step(before, tensor(10.0), tensor(3.0), scalars)
    assert (after.hess.item(), after.mean.item()) == (5.0, -1.0)


def test_prior_mean_is_where_decay_pulls_to() -> None:
    scalars = hyper(lr=1.0, weight_decay=1.0)
    pulled = update.update_mean(tensor(3.0), tensor(0.0), tensor(0.0), scalars, prior_mean=tensor(2.0))
    assert pulled.item() == 2.0


def test_estimate_is_scaled_by_ess_only_through_sigma() -> None:
    # g (theta - m) / sigma^2 with theta - m = sigma eps, at lambda = 1000 and h + delta = 0.4: sigma = 1/20.
    std = update.std(tensor(0.3), 1000.0, 0.1)
    assert std.item() == pytest.approx(0.05)
    assert update.hess_reparam(tensor(2.0), update.score(tensor(-0.5), std)).item() == pytest.approx(-20.0)
    assert update.hess_squared_gradient(tensor(2.0)).item() == 4.0


def test_functions_leave_their_inputs_alone() -> None:
    inputs = [torch.rand(7, dtype=F64) + 0.1 for _ in range(5)]
    copies = [value.clone() for value in inputs]
    mean, momentum, hess, grad, noise = inputs
    estimate = update.hess_reparam(grad, update.score(noise, update.std(hess, 10.0, 0.1)))
    kept = estimate.clone()
    update.step(Gaussian(mean, momentum, hess), grad, estimate, hyper())
    update.sample(mean, update.std(hess, 10.0, 0.1), noise)
    update.hess_squared_gradient(grad)
    assert all(torch.equal(value, copy) for value, copy in zip(inputs, copies, strict=True))
    assert torch.equal(estimate, kept)


@given(ess=st.floats(1.0, 1e6), decay=st.floats(1e-3, 10.0), seed=st.integers(0, 100))
def test_kl_matches_torch_distributions(ess: float, decay: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    mean = torch.randn(9, generator=generator, dtype=F64)
    prior_mean = torch.randn(9, generator=generator, dtype=F64)
    hess = torch.rand(9, generator=generator, dtype=F64) * 3.0 - 0.5 * decay
    hess.clamp_(min=-0.5 * decay)
    posterior = Normal(mean, (ess * (hess + decay)).rsqrt())
    prior = Normal(prior_mean, torch.full_like(mean, (ess * decay) ** -0.5))
    kept = hess.clone()
    ours = update.kl_divergence(mean, hess, ess, decay, prior_mean)
    torch.testing.assert_close(ours, kl_divergence(posterior, prior).sum(), rtol=1e-9, atol=1e-9)
    assert torch.equal(hess, kept)  # a float64 h is the state itself
