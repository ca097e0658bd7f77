"""F1 and correlations against hand-worked values, scikit-learn and scipy."""

import math
import warnings

import pytest
import sklearn.metrics
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import pearsonr, spearmanr

from varlearn.metrics import f1, matthews_correlation, pearson, spearman

LABELS = st.lists(st.tuples(st.integers(-1, 3), st.integers(-1, 3)), min_size=1, max_size=40)
VALUES = st.lists(st.tuples(st.integers(-4, 4), st.floats(-5, 5, width=32)), min_size=2, max_size=40)


def test_hand_worked() -> None:
    # TP 2, TN 1, FP 1, FN 1: (2 * 1 - 1 * 1) / sqrt(3 * 3 * 2 * 2)
    assert matthews_correlation(torch.tensor([1, 1, 1, 0, 0]), torch.tensor([1, 1, 0, 1, 0])) == pytest.approx(1 / 6)
    # ranks 1, 2.5, 2.5, 4 and 1, 2, 3, 4: 4.5 / sqrt(4.5 * 5)
    value = spearman(torch.tensor([0.0, 1.0, 1.0, 7.0]), torch.tensor([1.0, 2.0, 3.0, 4.0]))
    assert value == pytest.approx(4.5 / math.sqrt(4.5 * 5))


@given(LABELS)
def test_matthews_is_sklearns(pairs: list[tuple[int, int]]) -> None:
    predicted, observed = (list(column) for column in zip(*pairs, strict=True))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one label only
        expected = sklearn.metrics.matthews_corrcoef(observed, predicted)
    assert matthews_correlation(torch.tensor(predicted), torch.tensor(observed)) == pytest.approx(expected, abs=1e-12)


@given(LABELS)
def test_f1_is_sklearns(pairs: list[tuple[int, int]]) -> None:
    predicted, observed = ([value == 1 for value in column] for column in zip(*pairs, strict=True))
    expected = sklearn.metrics.f1_score(observed, predicted, zero_division=0.0)
    both = (torch.tensor(column) for column in zip(*pairs, strict=True))
    assert f1(*both) == pytest.approx(expected, abs=1e-12)


@given(VALUES)
def test_pearson_is_scipys(pairs: list[tuple[int, float]]) -> None:
    a, b = (torch.tensor(column, dtype=torch.float64) for column in zip(*pairs, strict=True))
    constant = len(set(a.tolist())) == 1 or len(set(b.tolist())) == 1
    value = pearson(a, b)
    assert math.isnan(value) == constant
    if not constant and min(a.std(), b.std()) > 1e-6:  # scipy loses its digits where the spread is tiny
        assert value == pytest.approx(pearsonr(a.numpy(), b.numpy()).statistic, abs=1e-9)


@given(VALUES)
def test_spearman_is_scipys(pairs: list[tuple[int, float]]) -> None:
    a, b = (torch.tensor(column, dtype=torch.float64) for column in zip(*pairs, strict=True))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # constant input
        expected = float(spearmanr(a.numpy(), b.numpy()).statistic)
    assert spearman(a, b) == pytest.approx(expected, abs=1e-10, nan_ok=True)
    assert spearman(a, b) == pytest.approx(spearman(b, a), nan_ok=True)


def test_one_class_and_constant() -> None:
    assert matthews_correlation(torch.ones(4, dtype=torch.long), torch.tensor([0, 1, 0, 1])) == 0.0
    assert math.isnan(spearman(torch.ones(4), torch.arange(4.0)))
    assert math.isnan(spearman(torch.ones(1), torch.ones(1)))


def test_perfect_correlation_is_exactly_one() -> None:
    labels = torch.arange(1000) % 3
    assert matthews_correlation(labels, labels) == 1.0
    x = torch.randn(1000)
    assert (spearman(x, x.double().exp()), spearman(x, -x)) == (1.0, -1.0)


def test_half_precision_ties_are_ranked() -> None:
    x, y = torch.randn(500), torch.randn(500)
    expected = spearmanr(x.half().double().numpy(), y.numpy()).statistic
    assert spearman(x.half(), y) == pytest.approx(float(expected), abs=1e-10)


def test_large_inputs() -> None:
    n = 2_000_000
    x = torch.arange(n, dtype=torch.float64)
    assert spearman(x, x.roll(1)) == pytest.approx(1 - 6 * ((n - 1) ** 2 + n - 1) / (n * (n * n - 1.0)), abs=1e-9)
    targets = torch.arange(n) % 2
    predicted = torch.where(torch.arange(n) % 4 < 2, targets, 1 - targets)  # half of each class is right
    assert matthews_correlation(predicted, targets) == 0.0


def test_refusals() -> None:
    with pytest.raises(TypeError, match=r"predictions has dtype torch.float32, must be an integer dtype"):
        matthews_correlation(torch.ones(2), torch.ones(2, dtype=torch.long))
    with pytest.raises(ValueError, match="targets is empty"):
        matthews_correlation(torch.ones(1, dtype=torch.long), torch.ones(0, dtype=torch.long))
    with pytest.raises(ValueError, match="lengths differ: predictions 2, targets 3"):
        spearman(torch.ones(2), torch.ones(3))
    with pytest.raises(ValueError, match="predictions row 1 is nan"):
        spearman(torch.tensor([0.0, float("nan")]), torch.ones(2))


def test_rounding_makes_no_correlation_above_one() -> None:
    for seed in range(300):
        x = torch.randn(7, generator=torch.Generator().manual_seed(seed))
        assert -1.0 <= pearson(x, -3 * x) <= pearson(x, 3 * x) <= 1.0


def test_another_class_may_be_the_positive_one() -> None:
    predicted, observed = torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 1])
    assert f1(predicted, observed, positive=0) == pytest.approx(2 / 3)
    assert f1(predicted, observed) == pytest.approx(2 / 4)
    assert f1(predicted, observed, positive=3) == 0.0
