"""The bootstrap covers what it claims, repeats itself, and leaves the global random state alone."""

import math

import pytest
import torch
from torch import Tensor

from varlearn.metrics import accuracy, auroc, bootstrap_interval, nll, spearman


def mean(x: Tensor) -> float:
    return x.mean().item()


def test_standard_error_and_ends_of_a_mean() -> None:
    x = torch.randn(400, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    interval = bootstrap_interval(mean, x, resamples=4000)
    error = x.std(correction=0).item() / math.sqrt(400)
    assert interval.value == mean(x)
    assert interval.std == pytest.approx(error, rel=0.05)
    assert interval.low == pytest.approx(mean(x) - 1.96 * error, abs=0.15 * error)
    assert interval.high == pytest.approx(mean(x) + 1.96 * error, abs=0.15 * error)


def test_interval_covers_the_truth_about_as_often_as_it_claims() -> None:
    generator = torch.Generator().manual_seed(0)
    hits = 0
    for trial in range(200):
        interval = bootstrap_interval(mean, torch.randn(50, generator=generator), resamples=100, level=0.8, seed=trial)
        hits += interval.low <= 0 <= interval.high
    assert 0.70 <= hits / 200 <= 0.89  # three standard errors of .8 either way, and a little less at n = 50


def test_rows_stay_together_when_paired() -> None:
    x = torch.arange(30.0)
    interval = bootstrap_interval(lambda a, b: (a - b).abs().max().item(), x, x, resamples=20)
    assert interval.high == 0.0


def test_unpaired_sets_may_differ_in_number() -> None:
    in_scores, out_scores = torch.randn(80) + 1, torch.randn(30)
    interval = bootstrap_interval(auroc, in_scores, out_scores, resamples=200, paired=False)
    assert interval.low < interval.value < interval.high
    drawn: list[tuple[int, int]] = []
    bootstrap_interval(
        lambda a, b: float(drawn.append((len(a), len(b))) or 0), in_scores, out_scores, resamples=3, paired=False
    )
    assert set(drawn) == {(80, 30)}


def test_seed_decides_and_the_global_state_is_untouched(predictions) -> None:
    log_probs, targets = predictions(100, 3, 0)
    state = torch.get_rng_state()
    first = bootstrap_interval(accuracy, log_probs, targets, resamples=50, seed=3)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(123)
    assert bootstrap_interval(accuracy, log_probs, targets, resamples=50, seed=3) == first
    assert bootstrap_interval(nll, log_probs, targets, resamples=50, seed=4) != bootstrap_interval(
        nll, log_probs, targets, resamples=50
    )


def test_ends_are_the_resampled_values_around_the_quantiles() -> None:
    values = iter(range(11))  # 0 for the data, then 1 .. 10; the quartiles lie at 3.25 and 7.75
    interval = bootstrap_interval(lambda x: float(next(values)), torch.ones(2), resamples=10, level=0.5)
    assert (interval.value, interval.low, interval.high) == (0.0, 3.0, 8.0)


def test_infinite_metric_gives_an_infinite_end() -> None:
    log_probs = torch.tensor([[0.0, -float("inf")]]).expand(20, 2)
    targets = torch.tensor([0] * 19 + [1])
    interval = bootstrap_interval(nll, log_probs, targets, resamples=200)
    assert (interval.value, interval.low, interval.high, interval.std) == (math.inf, 0.0, math.inf, math.inf)


def test_refusals() -> None:
    x = torch.ones(3)
    with pytest.raises(ValueError, match=r"data has lengths \[\], must be at least one"):
        bootstrap_interval(mean)
    with pytest.raises(ValueError, match=r"data has lengths \[0\]"):
        bootstrap_interval(mean, torch.zeros(0))
    with pytest.raises(ValueError, match=r"data has lengths \[3, 2\], must be equal; use paired=False"):
        bootstrap_interval(auroc, x, torch.ones(2))
    with pytest.raises(ValueError, match="resamples=1 must be >= 2"):
        bootstrap_interval(mean, x, resamples=1)
    with pytest.raises(ValueError, match=r"level=0 must be in \(0, 1\)"):
        bootstrap_interval(mean, x, level=0)
    with pytest.raises(ValueError, match="resample 0 gave nan, must be a number"):
        bootstrap_interval(spearman, x, x)


def test_defaults_and_ends_of_the_ranges() -> None:
    x = torch.randn(20)
    assert bootstrap_interval(mean, x) == bootstrap_interval(mean, x, resamples=1000, level=0.95, seed=0, paired=True)
    calls: list[int] = []
    bootstrap_interval(lambda _: float(len(calls)) if calls.append(1) is None else 0.0, x)
    assert len(calls) == 1 + 1000
    assert bootstrap_interval(mean, x) != bootstrap_interval(mean, x, seed=1)
    assert bootstrap_interval(mean, x, resamples=2).low <= bootstrap_interval(mean, x, resamples=2).high
    with pytest.raises(ValueError, match=r"level=1 must be in \(0, 1\)"):
        bootstrap_interval(mean, x, level=1)
