"""Selective prediction against tables worked by hand, scikit-learn, and the average over all orders of ties."""

import itertools
import math

import numpy as np
import pytest
import sklearn.metrics
import torch
from hypothesis import given
from hypothesis import strategies as st

from varlearn.metrics import accuracy, aurc, misclassification_auroc, risk_coverage

CASE = {"n": st.integers(1, 80), "classes": st.integers(2, 6), "seed": st.integers(0, 10_000), "tied": st.booleans()}

# confidence .9 right, .8 wrong, .7 right, .6 wrong
TABLE = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.6, 0.4]]).log()
TARGETS = torch.tensor([0, 1, 0, 1])


def test_hand_worked_table() -> None:
    curve = risk_coverage(TABLE.amax(-1), torch.tensor([0.0, 1.0, 0.0, 1.0]))
    assert curve.coverage.tolist() == [0.25, 0.5, 0.75, 1.0]
    assert curve.risk.tolist() == pytest.approx([0, 1 / 2, 1 / 3, 2 / 4])
    assert aurc(TABLE, TARGETS) == pytest.approx((0 + 1 / 2 + 1 / 3 + 1 / 2) / 4)
    assert misclassification_auroc(TABLE, TARGETS) == 3 / 4  # .9 beats both, .7 beats .6


def test_another_confidence_is_used() -> None:
    assert misclassification_auroc(TABLE, TARGETS, confidence=torch.tensor([1.0, 0.0, 1.0, 0.0])) == 1.0
    assert aurc(TABLE, TARGETS, confidence=torch.tensor([1.0, 0.0, 1.0, 0.0])) == pytest.approx(
        (0 + 0 + 1 / 3 + 1 / 2) / 4
    )


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), min_size=1, max_size=6))
def test_ties_are_the_average_over_their_orders(rows: list[tuple[int, int]]) -> None:
    orders = [o for o in itertools.permutations(rows) if all(a[0] >= b[0] for a, b in itertools.pairwise(o))]
    counts = np.arange(1, len(rows) + 1)
    expected = np.mean([np.cumsum([loss for _, loss in order]) / counts for order in orders], axis=0)
    confidence, loss = (torch.tensor(column, dtype=torch.float32) for column in zip(*rows, strict=True))
    assert risk_coverage(confidence, loss).risk.tolist() == pytest.approx(expected.tolist(), abs=1e-12)


@given(**CASE)
def test_auroc_agrees_with_sklearn(predictions, n: int, classes: int, seed: int, tied: bool) -> None:
    log_probs, targets = predictions(n, classes, seed, tied)
    right = (log_probs.argmax(-1) == targets).numpy()
    value = misclassification_auroc(log_probs, targets)
    if right.all() or not right.any():
        assert math.isnan(value)
    else:
        assert value == pytest.approx(sklearn.metrics.roc_auc_score(right, log_probs.amax(-1).numpy()), abs=1e-12)


@given(**CASE)
def test_curve_ends_at_the_error_rate_and_ignores_row_order(predictions, n, classes, seed, tied) -> None:
    log_probs, targets = predictions(n, classes, seed, tied)
    wrong = log_probs.argmax(-1) != targets
    curve = risk_coverage(log_probs.amax(-1), wrong)
    assert curve.risk[-1].item() == pytest.approx(1 - accuracy(log_probs, targets), abs=1e-12)
    shuffled = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    assert aurc(log_probs[shuffled], targets[shuffled]) == pytest.approx(aurc(log_probs, targets), abs=1e-12)
    perfect = risk_coverage(-wrong.double(), wrong).risk.mean().item()
    assert (
        perfect - 1e-12 <= aurc(log_probs, targets) <= risk_coverage(wrong.double(), wrong).risk.mean().item() + 1e-12
    )


def test_constant_confidence_gives_the_error_rate() -> None:
    uniform = torch.full((4, 2), 0.5).log()
    assert aurc(uniform, torch.tensor([0, 1, 1, 1])) == pytest.approx(0.75)
    assert misclassification_auroc(uniform, torch.tensor([0, 1, 1, 1])) == 0.5


def test_all_right() -> None:
    assert aurc(TABLE, torch.zeros(4, dtype=torch.long)) == 0.0
    assert math.isnan(misclassification_auroc(TABLE, torch.zeros(4, dtype=torch.long)))


def test_saturated_float32_confidences_keep_their_order() -> None:
    # both probabilities round to 1 in float32, their logarithms differ
    log_probs = torch.tensor([[-1e-12, -27.6], [-1e-9, -20.7]])
    assert misclassification_auroc(log_probs, torch.tensor([0, 1])) == 1.0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(predictions, dtype: torch.dtype) -> None:
    log_probs, targets = predictions(2000, 4, 0)
    assert aurc(log_probs.to(dtype), targets) == pytest.approx(aurc(log_probs, targets), abs=0.01)


def test_a_large_curve_has_the_known_area() -> None:
    n = 1_000_000  # loss 1 for the less confident half: risk is 0, then 1 - n / 2k, whose mean is (1 - ln 2) / 2
    confidence = torch.arange(n, 0, -1.0, dtype=torch.float64)
    area = risk_coverage(confidence, confidence <= n // 2).risk.mean().item()
    assert area == pytest.approx((1 - math.log(2)) / 2, abs=1e-5)


def test_refusals() -> None:
    with pytest.raises(ValueError, match="confidence is empty"):
        risk_coverage(torch.zeros(0), torch.zeros(0))
    with pytest.raises(ValueError, match="lengths differ: confidence 2, loss 3"):
        risk_coverage(torch.zeros(2), torch.zeros(3))
    with pytest.raises(ValueError, match="loss row 0 is inf, must be finite"):
        risk_coverage(torch.zeros(1), torch.tensor([float("inf")]))
    for metric in (aurc, misclassification_auroc):
        with pytest.raises(ValueError, match="lengths differ: confidence 2, targets 4"):
            metric(TABLE, TARGETS, confidence=torch.zeros(2))
        with pytest.raises(ValueError, match="at least one row"):
            metric(torch.zeros(0, 2), torch.zeros(0, dtype=torch.long))
