"""Is the noise standard normal and independent? Seeds are fixed; thresholds come from the sampling distribution.

Each number compared is standard normal under the hypothesis, and 5 is exceeded once in 1.7 million; p-values are
bounded by the same 6e-7. A test makes at most 14 such comparisons, so a sound generator fails it with less than 1e-5.
"""

import math
from collections.abc import Iterator

import pytest
import torch
from scipy import stats
from torch import Tensor

from varlearn.core.noise import GOLDEN, derive_key, normal_, normal_pairs, signed

SIGMAS = 5.0
P_VALUE = 6e-7
QUICK, SLOW = 1 << 22, 100_000_000
SIZES = [QUICK, pytest.param(SLOW, marks=pytest.mark.slow)]


def blocks(count: int, dtype: torch.dtype = torch.float32, key: int = derive_key(2024, 0)) -> Iterator[Tensor]:
    """`count` numbers of one key, in float64, some millions at a time."""
    block = 1 << 22
    for start in range(0, count, block):
        yield normal_(torch.empty(min(block, count - start), dtype=dtype), key, start).double()


def first_numbers(keys: list[int]) -> Tensor:
    """The first two normals of each key, shape (keys, 2)."""
    counters = torch.tensor([signed((key + GOLDEN) % 2**64) for key in keys])
    return torch.stack(normal_pairs(counters, torch.float64), dim=1)


def deviation_of_products(x: Tensor, y: Tensor) -> tuple[float, float]:
    """In standard errors from zero: the correlation of x and y, and that of their squares."""
    root = math.sqrt(x.numel())
    linear = (x * y).mean().item() * root
    squares = ((x**2 - 1.0) * (y**2 - 1.0)).mean().item() * root / 2.0
    return linear, squares


def assert_independent(x: Tensor, y: Tensor) -> None:
    linear, squares = deviation_of_products(x, y)
    assert abs(linear) <= SIGMAS
    assert abs(squares) <= SIGMAS


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("count", SIZES)
def test_moments_to_fourth_order(count: int, dtype: torch.dtype) -> None:
    sums = torch.zeros(4, dtype=torch.float64)
    for x in blocks(count, dtype):
        sums += torch.stack([(x**order).sum() for order in (1, 2, 3, 4)])
    expected = torch.tensor([0.0, 1.0, 0.0, 3.0], dtype=torch.float64)
    variance = torch.tensor([1.0, 2.0, 15.0, 96.0], dtype=torch.float64)
    deviations = (sums / count - expected) / (variance / count).sqrt()
    assert deviations.abs().max().item() <= SIGMAS, deviations


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_kolmogorov_smirnov(dtype: torch.dtype) -> None:
    numbers = torch.cat(list(blocks(1 << 20, dtype)))
    for part in (numbers, numbers[0::2], numbers[1::2]):  # both, the cosines, the sines
        assert stats.kstest(part.numpy(), "norm").pvalue > P_VALUE


@pytest.mark.parametrize("count", SIZES)
def test_equally_likely_bins(count: int) -> None:
    """Chi-square over 1,000 bins: finer than Kolmogorov-Smirnov, which is blind to small-scale structure."""
    edges = torch.from_numpy(stats.norm.ppf([k / 1000 for k in range(1, 1000)]))
    counts = torch.zeros(1000, dtype=torch.int64)
    for x in blocks(count):
        counts += torch.bincount(torch.bucketize(x, edges), minlength=1000)
    assert stats.chisquare(counts.numpy()).pvalue > P_VALUE


@pytest.mark.parametrize("count", SIZES)
def test_tails_to_five_sigma(count: int) -> None:
    """How many numbers lie beyond 1, ..., 5 on either side, against the binomial distribution."""
    beyond = {(side, k): 0 for side in (-1, 1) for k in range(1, 6)}
    for x in blocks(count):
        for side, k in beyond:
            beyond[side, k] += int((side * x > k).sum())
    for (side, k), seen in beyond.items():
        p = stats.binomtest(seen, count, stats.norm.sf(k)).pvalue
        assert p > P_VALUE, f"{seen} of {count} numbers beyond {side * k} (p = {p:.1e})"


@pytest.mark.parametrize("count", SIZES)
def test_elements_at_any_lag_are_independent(count: int) -> None:
    lags = [1, 2, 3, 4, 8, 1 << 10, 1 << 18]
    totals = {lag: [0.0, 0.0, 0.0] for lag in lags}
    for x in blocks(count):
        for lag in lags:
            n = x.numel() - lag
            if n > 0:
                linear, squares = deviation_of_products(x[lag:], x[:-lag])
                totals[lag][0] += linear * math.sqrt(n)
                totals[lag][1] += squares * math.sqrt(n)
                totals[lag][2] += n
    for lag, (linear, squares, n) in totals.items():
        assert abs(linear) / math.sqrt(n) <= SIGMAS, lag
        assert abs(squares) / math.sqrt(n) <= SIGMAS, lag


@pytest.mark.parametrize("lag", [1, 2])
def test_neighbours_fill_the_plane(lag: int) -> None:
    """Chi-square over 64 x 64 equally likely cells: lag 1 contains the two numbers of a pair, lag 2 never does."""
    edges = torch.from_numpy(stats.norm.ppf([k / 64 for k in range(1, 64)]))
    cells = torch.bucketize(torch.cat(list(blocks(QUICK))), edges)
    pairs = cells[:-lag][::2] * 64 + cells[lag:][::2]
    assert stats.chisquare(torch.bincount(pairs, minlength=4096).numpy()).pvalue > P_VALUE


@pytest.mark.parametrize("coordinate", ["seed", "draw", "replica", "index", "stream"])
def test_tensors_whose_keys_are_neighbours_are_independent(coordinate: str) -> None:
    base = {"seed": 5, "draw": 17, "replica": 0, "index": 3, "stream": 0}
    x = torch.cat(list(blocks(1 << 20, key=derive_key(**base))))
    for distance in (1, 2, 64):
        other = {**base, coordinate: base[coordinate] + distance}
        y = torch.cat(list(blocks(1 << 20, key=derive_key(**other))))
        assert_independent(x, y)
        assert_independent(x[:-1], y[1:])


@pytest.mark.parametrize("coordinate", ["seed", "draw", "replica", "index"])
def test_one_element_over_many_keys_is_normal_and_white(coordinate: str) -> None:
    """The series that one weight sees from step to step, and its like over parameters, seeds and replicas."""
    keys = [derive_key(**{"seed": 1, "draw": 2, coordinate: k}) for k in range(50_000)]
    for series in first_numbers(keys).unbind(1):
        assert stats.kstest(series.numpy(), "norm").pvalue > P_VALUE
        for lag in (1, 2, 64):
            assert_independent(series[lag:], series[:-lag])


def test_the_checks_notice_a_correlation_of_one_percent() -> None:
    x, y = (torch.cat(list(blocks(1 << 20, key=derive_key(5, draw)))) for draw in (0, 1))
    with pytest.raises(AssertionError):
        assert_independent(x, 0.01 * x + math.sqrt(1.0 - 1e-4) * y)
