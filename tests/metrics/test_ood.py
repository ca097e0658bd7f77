"""Out-of-domain detection against tables worked by hand, scikit-learn, and the inequality between its errors."""

import math

import numpy as np
import pytest
import sklearn.metrics
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from varlearn.metrics import aupr_in, aupr_out, auroc, detection_error, fpr95_paper, fpr_at_tpr

METRICS = [fpr_at_tpr, fpr95_paper, detection_error, auroc, aupr_in, aupr_out]
SCORE = st.floats(-5, 5, width=32) | st.integers(-3, 3).map(float)
SCORES = st.lists(SCORE, min_size=1, max_size=60).map(lambda x: torch.tensor(x, dtype=torch.float32))


def labelled(in_scores: Tensor, out_scores: Tensor) -> tuple[np.ndarray, np.ndarray]:
    y = np.r_[np.ones(len(in_scores)), np.zeros(len(out_scores))]
    return y, torch.cat([in_scores, out_scores]).double().numpy()


def test_hand_worked_table() -> None:
    # 20 in-domain scores 1 .. 20, 4 out-of-domain. 95% TPR keeps 2 .. 20, so the threshold is 2.
    in_scores, out_scores = torch.arange(1.0, 21.0), torch.tensor([0.5, 1.5, 2.5, 30.0])
    assert fpr_at_tpr(in_scores, out_scores) == 0.5
    # at 3 it is (1 - 18/20 + 1/4) / 2 = .175, lower than at 2 (.05 + .5) / 2, and than at 1 (0 + .75) / 2
    assert detection_error(in_scores, out_scores) == pytest.approx(0.175)
    # pairs won: against .5 20, against 1.5 19, against 2.5 18, against 30 none
    assert auroc(in_scores, out_scores) == 57 / 80


def test_hand_worked_ties() -> None:
    in_scores, out_scores = torch.tensor([2.0, 1.0, 1.0]), torch.tensor([1.0, 0.0])
    assert auroc(in_scores, out_scores) == (2 + 1.5 + 1.5) / 6
    assert aupr_in(in_scores, out_scores) == pytest.approx(1 / 3 * 1 + 2 / 3 * 3 / 4)
    assert aupr_out(in_scores, out_scores) == pytest.approx(1 / 2 * 1 + 1 / 2 * 2 / 4)
    assert fpr_at_tpr(in_scores, out_scores) == 0.5
    assert detection_error(in_scores, out_scores) == pytest.approx(0.25)


@pytest.mark.parametrize("n", [20, 40, 60, 100, 140, 1000, 10_000])
def test_exactly_95_percent_counts_as_95_percent(n: int) -> None:
    in_scores = torch.arange(n, 0, -1.0)
    out_scores = torch.tensor([in_scores[n * 95 // 100 - 1] - 0.5])  # just below the last of the first 95%
    assert fpr_at_tpr(in_scores, out_scores) == 0.0


def test_the_papers_column_counts_the_points_at_exactly_95_percent() -> None:
    # from the top: 19 in-domain, 1 out-of-domain, 1 in-domain. Kept with TPR <= .95, as (FPR, TPR):
    # (0, 0), (0, .05), (0, .95), (1, .95). The true FPR at 95% TPR is 0.
    in_scores, out_scores = torch.tensor([*range(21, 2, -1), 1.0]), torch.tensor([2.0])
    assert fpr95_paper(in_scores, out_scores) == 0.25
    assert fpr_at_tpr(in_scores, out_scores) == 0.0


@given(SCORES, SCORES)
def test_agrees_with_sklearn(in_scores: Tensor, out_scores: Tensor) -> None:
    y, s = labelled(in_scores, out_scores)
    assert auroc(in_scores, out_scores) == pytest.approx(sklearn.metrics.roc_auc_score(y, s), abs=1e-12)
    assert aupr_in(in_scores, out_scores) == pytest.approx(sklearn.metrics.average_precision_score(y, s), abs=1e-12)
    expected = sklearn.metrics.average_precision_score(1 - y, -s)
    assert aupr_out(in_scores, out_scores) == pytest.approx(expected, abs=1e-12)
    fpr, tpr, _ = sklearn.metrics.roc_curve(y, s, drop_intermediate=False)
    assert fpr_at_tpr(in_scores, out_scores) == pytest.approx(fpr[tpr >= 0.95].min(), abs=1e-12)
    assert detection_error(in_scores, out_scores) == pytest.approx(((1 - tpr + fpr) / 2).min(), abs=1e-12)
    fpr, tpr, _ = sklearn.metrics.roc_curve(y, s)
    assert fpr95_paper(in_scores, out_scores) == pytest.approx(fpr[tpr <= 0.95].mean(), abs=1e-12)


@given(SCORES, SCORES, st.floats(0.01, 1.0))
def test_detection_error_is_bounded_by_the_fpr(in_scores: Tensor, out_scores: Tensor, tpr: float) -> None:
    bound = (fpr_at_tpr(in_scores, out_scores, tpr) + 1 - tpr) / 2
    assert detection_error(in_scores, out_scores) <= bound + 1e-12


def test_the_papers_column_breaks_that_bound_where_the_true_one_cannot() -> None:
    generator = torch.Generator().manual_seed(0)
    in_scores = torch.randn(4000, generator=generator)
    out_scores = torch.randn(4000, generator=generator) - 1.5
    error = detection_error(in_scores, out_scores)
    assert error > (fpr95_paper(in_scores, out_scores) + 0.05) / 2
    assert error <= (fpr_at_tpr(in_scores, out_scores) + 0.05) / 2


@given(SCORES, SCORES)
def test_symmetries(in_scores: Tensor, out_scores: Tensor) -> None:
    assert auroc(in_scores, out_scores) == pytest.approx(1 - auroc(out_scores, in_scores), abs=1e-12)
    assert aupr_out(in_scores, out_scores) == aupr_in(-out_scores, -in_scores)
    for metric in METRICS:  # only the ranking matters
        assert metric(in_scores.double() * 2, out_scores.double() * 2) == metric(in_scores, out_scores)
        assert 0 <= metric(in_scores, out_scores) <= 1


def test_constant_scores() -> None:
    in_scores, out_scores = torch.ones(3), torch.ones(1)
    expected = {fpr_at_tpr: 1.0, detection_error: 0.5, auroc: 0.5, aupr_in: 0.75, aupr_out: 0.25, fpr95_paper: 0.0}
    assert {metric: metric(in_scores, out_scores) for metric in METRICS} == expected


def test_perfect_and_reversed_separation() -> None:
    high, low = torch.tensor([3.0, 2.0]), torch.tensor([1.0, -float("inf")])
    assert [metric(high, low) for metric in METRICS] == [0.0, 0.0, 0.0, 1.0, 1.0, 1.0]
    assert (fpr_at_tpr(low, high), detection_error(low, high), auroc(low, high)) == (1.0, 0.5, 0.0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_scores_are_ranked_as_they_are(dtype: torch.dtype) -> None:
    in_scores, out_scores = torch.randn(300).to(dtype), torch.randn(200).to(dtype)
    for metric in METRICS:
        assert metric(in_scores, out_scores) == metric(in_scores.double(), out_scores.double())


def test_ten_million_scores_have_the_known_auroc() -> None:
    generator = torch.Generator().manual_seed(0)
    in_scores = torch.randn(6_000_000, generator=generator)
    out_scores = torch.randn(4_000_000, generator=generator) - 1
    expected = 0.5 * (1 + math.erf(0.5))  # Phi(1 / sqrt 2)
    assert auroc(in_scores, out_scores) == pytest.approx(expected, abs=5e-4)


@pytest.mark.parametrize("metric", METRICS)
def test_refusals(metric) -> None:
    good = torch.ones(2)
    with pytest.raises(ValueError, match="in_scores is empty"):
        metric(torch.zeros(0), good)
    with pytest.raises(ValueError, match="out_scores is empty"):
        metric(good, torch.zeros(0))
    with pytest.raises(ValueError, match="out_scores row 1 is nan, must be a number; remove it"):
        metric(good, torch.tensor([0.0, float("nan")]))
    with pytest.raises(TypeError, match=r"in_scores has dtype torch.int64, must be a floating dtype"):
        metric(torch.tensor([1, 2]), good)


@pytest.mark.parametrize("tpr", [0.0, 1.5, float("nan")])
def test_tpr_outside_its_range_is_refused(tpr: float) -> None:
    with pytest.raises(ValueError, match=r"tpr=.* must be in \(0, 1\]"):
        fpr_at_tpr(torch.ones(1), torch.ones(1), tpr)


def test_every_in_domain_example_may_be_asked_for() -> None:
    assert fpr_at_tpr(torch.tensor([3.0, 1.0]), torch.tensor([2.0, 0.0]), tpr=1.0) == 0.5
