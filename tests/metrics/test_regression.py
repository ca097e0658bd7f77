"""Regression scores against closed forms, scipy and numerical integration."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from varlearn.metrics import (
    chunks,
    crps_gaussian,
    crps_samples,
    crps_samples_per_example,
    gaussian_interval,
    gaussian_nll,
    gaussian_nll_per_example,
    interval_coverage,
    merge_means,
    rmse,
)
from varlearn.metrics.regression import crps_gaussian_per_example

CASE = {"n": st.integers(1, 40), "seed": st.integers(0, 10_000)}


def draw(n: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    mean, y = 3 * torch.randn(2, n, generator=generator, dtype=torch.float64)
    return mean, torch.rand(n, generator=generator, dtype=torch.float64) * 4 + 0.01, y


def test_hand_worked() -> None:
    mean, variance, y = torch.tensor([0.0, 1.0]), torch.tensor([1.0, 4.0]), torch.tensor([1.0, 5.0])
    assert gaussian_nll(mean, variance, y) == pytest.approx(0.5 * (math.log(2 * math.pi) + (1 + math.log(4) + 4) / 2))
    assert rmse(mean, y) == pytest.approx(math.sqrt((1 + 16) / 2))
    # samples 0, 1, 5 and y = 2: (2 + 1 + 3) / 3 - 2 (1 + 5 + 4) / 18
    assert crps_samples(torch.tensor([[0.0], [1.0], [5.0]]), torch.tensor([2.0])) == pytest.approx(2 - 20 / 18)
    assert crps_samples(torch.tensor([[0.0], [1.0], [5.0]]), torch.tensor([2.0]), fair=True) == pytest.approx(
        2 - 20 / 12
    )


@given(**CASE, cut=st.integers(1, 40))
def test_nll_rmse_and_coverage_agree_with_scipy(n: int, seed: int, cut: int) -> None:
    mean, variance, y = draw(n, seed)
    density = norm(mean.numpy(), variance.sqrt().numpy())
    assert gaussian_nll(mean, variance, y) == pytest.approx(-density.logpdf(y.numpy()).mean(), rel=1e-10)
    np.testing.assert_allclose(gaussian_nll_per_example(mean, variance, y), -density.logpdf(y.numpy()), rtol=1e-10)
    parts = [slice(i, i + cut) for i in range(0, n, cut)]
    merged = math.sqrt(merge_means([(rmse(mean[part], y[part]) ** 2, len(y[part])) for part in parts]))
    assert merged == pytest.approx(math.sqrt(((mean - y) ** 2).mean().item()), rel=1e-10)
    lower, upper = gaussian_interval(mean, variance, level=0.8)
    expected = density.interval(0.8)
    np.testing.assert_allclose(np.stack([lower, upper]), np.stack(expected), rtol=1e-9, atol=1e-9)
    assert interval_coverage(lower, upper, y) == np.mean((expected[0] <= y.numpy()) & (y.numpy() <= expected[1]))


@pytest.mark.parametrize(("mean", "std", "y"), [(0.0, 1.0, 0.0), (0.0, 1.0, 2.5), (1.0, 0.3, -1.0), (-2.0, 5.0, 1.0)])
def test_gaussian_crps_is_its_integral(mean: float, std: float, y: float) -> None:
    below = quad(lambda x: norm.cdf(x, mean, std) ** 2, -np.inf, y)[0]
    above = quad(lambda x: norm.sf(x, mean, std) ** 2, y, np.inf)[0]
    values = (torch.tensor([v], dtype=torch.float64) for v in (mean, std**2, y))
    assert crps_gaussian(*values) == pytest.approx(below + above, abs=1e-7)


@given(**CASE, s=st.integers(2, 15), limit=st.integers(1, 60))
def test_sample_crps_is_the_sum_over_pairs(n: int, seed: int, s: int, limit: int) -> None:
    _, _, y = draw(n, seed)
    x = torch.randn(s, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    pairs = (x[:, None] - x[None]).abs().sum((0, 1))
    near = (x - y).abs().mean(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "CHUNK_ELEMENTS", limit)
        torch.testing.assert_close(crps_samples_per_example(x, y), near - pairs / (2 * s * s))
        torch.testing.assert_close(crps_samples_per_example(x, y, fair=True), near - pairs / (2 * s * (s - 1)))


def test_many_samples_near_the_gaussian_crps() -> None:
    x = 1 + 2 * torch.randn(200_000, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    exact = crps_gaussian(torch.tensor([1.0]), torch.tensor([4.0]), torch.tensor([2.0]))
    assert crps_samples(x, torch.tensor([2.0])) == pytest.approx(exact, abs=5e-3)


def test_fair_crps_is_unbiased_and_the_plain_one_is_not() -> None:
    x = torch.randn(4, 200_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = torch.zeros(200_000, dtype=torch.float64)
    exact = crps_gaussian(torch.zeros(1), torch.ones(1), torch.zeros(1))
    assert crps_samples(x, y, fair=True) == pytest.approx(exact, abs=4e-3)
    assert crps_samples(x, y) == pytest.approx(exact + 1 / (4 * math.sqrt(math.pi)), abs=4e-3)  # E|X - X'| / (2 S)


def test_one_sample_gives_the_absolute_error() -> None:
    assert crps_samples(torch.tensor([[1.0, -2.0]]), torch.tensor([0.0, 0.0])) == 1.5


def test_large_offsets_do_not_cancel() -> None:
    x = torch.tensor([[0.0], [2.0]], dtype=torch.float64)
    assert crps_samples(x + 1e9, torch.tensor([1e9], dtype=torch.float64)) == pytest.approx(0.5, abs=1e-6)


def test_crps_scales_with_the_unit() -> None:
    mean, variance, y = draw(30, 0)
    scaled = crps_gaussian_per_example(3 * mean, 9 * variance, 3 * y)
    torch.testing.assert_close(scaled, 3 * crps_gaussian_per_example(mean, variance, y))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype: torch.dtype) -> None:
    mean, variance, y = (v.to(dtype) for v in draw(50, 0))
    for metric in (gaussian_nll, crps_gaussian):
        assert metric(mean, variance, y) == metric(mean.double(), variance.double(), y.double())
    assert rmse(mean, y) == rmse(mean.double(), y.double())


def test_nominal_coverage_of_a_million_gaussian_targets() -> None:
    y = torch.randn(1_000_000, generator=torch.Generator().manual_seed(0))
    lower, upper = gaussian_interval(torch.zeros(1_000_000), torch.ones(1_000_000), level=0.9)
    assert interval_coverage(lower, upper, y) == pytest.approx(0.9, abs=1.5e-3)


def test_refusals() -> None:
    one, two, empty = torch.ones(1), torch.ones(2), torch.zeros(0)
    for metric in (gaussian_nll, crps_gaussian):
        with pytest.raises(ValueError, match=r"variance row 1 is 0.0, must be > 0; add the noise variance"):
            metric(two, torch.tensor([1.0, 0.0]), two)
        with pytest.raises(ValueError, match="lengths differ: mean 1, variance 2, targets 2"):
            metric(one, two, two)
        with pytest.raises(ValueError, match="mean is empty"):
            metric(empty, empty, empty)
    with pytest.raises(ValueError, match="targets row 0 is nan"):
        rmse(one, torch.tensor([float("nan")]))
    with pytest.raises(ValueError, match="samples row 1 is not finite in column 0"):
        crps_samples(torch.tensor([[1.0], [float("inf")]]), one)
    with pytest.raises(ValueError, match="samples has 2 columns and targets 1 rows"):
        crps_samples(torch.ones(1, 2), one)
    with pytest.raises(ValueError, match="fair=True needs at least 2"):
        crps_samples(torch.ones(1, 1), one, fair=True)
    with pytest.raises(ValueError, match=r"lower row 0 is 2.0 > upper 1.0; swap"):
        interval_coverage(2 * one, one, one)
    with pytest.raises(ValueError, match=r"level=1.0 must be in \(0, 1\)"):
        gaussian_interval(one, one, level=1.0)


@pytest.mark.parametrize("level", [0.0, 1.0, -0.5])
def test_an_interval_of_no_or_all_probability_is_refused(level: float) -> None:
    with pytest.raises(ValueError, match=r"must be in \(0, 1\)"):
        gaussian_interval(torch.zeros(1), torch.ones(1), level)


def test_both_ends_of_an_interval_are_inside_and_may_be_equal() -> None:
    lower, upper, targets = torch.tensor([1.0, 1.0, 2.0]), torch.tensor([3.0, 3.0, 2.0]), torch.tensor([1.0, 3.0, 2.0])
    assert interval_coverage(lower, upper, targets) == 1.0
