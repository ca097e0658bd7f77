"""Classification scores against tables worked by hand, scikit-learn and torchmetrics."""

import math
from types import ModuleType

import numpy as np
import pytest
import sklearn.metrics
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import entropy

from varlearn.metrics import (
    accuracy,
    brier,
    brier_per_example,
    chunks,
    correct_per_example,
    entropy_per_example,
    from_probs,
    max_log_prob,
    merge_means,
    nll,
    nll_per_example,
    predictive_entropy,
    top_k_accuracy,
)

CASE = {"n": st.integers(1, 60), "classes": st.integers(2, 8), "seed": st.integers(0, 10_000)}
WITH_TARGETS = [accuracy, nll, brier, top_k_accuracy]

# probabilities              target  right  NLL     Brier
# 0.50 0.25 0.25             0       yes    ln 2    .25 + .0625 + .0625 = .375
# 0.50 0.25 0.25             2       no     ln 4    .25 + .0625 + .5625 = .875
# 0.00 1.00 0.00             1       yes    0       0
# 0.25 0.25 0.50             0       no     ln 4    .5625 + .0625 + .25 = .875
TABLE = torch.tensor([[0.5, 0.25, 0.25], [0.5, 0.25, 0.25], [0.0, 1.0, 0.0], [0.25, 0.25, 0.5]], dtype=torch.float64)
TARGETS = torch.tensor([0, 2, 1, 0])


def test_hand_worked_table() -> None:
    log_probs = TABLE.log()
    assert correct_per_example(log_probs, TARGETS).tolist() == [True, False, True, False]
    assert accuracy(log_probs, TARGETS) == 0.5
    assert nll_per_example(log_probs, TARGETS).tolist() == pytest.approx([math.log(2), math.log(4), 0, math.log(4)])
    assert nll(log_probs, TARGETS) == pytest.approx(5 * math.log(2) / 4)
    assert brier_per_example(log_probs, TARGETS).tolist() == pytest.approx([0.375, 0.875, 0, 0.875])
    assert brier(log_probs, TARGETS) == pytest.approx(2.125 / 4)
    assert entropy_per_example(log_probs).tolist() == pytest.approx([1.5 * math.log(2)] * 2 + [0, 1.5 * math.log(2)])
    assert predictive_entropy(log_probs) == pytest.approx(4.5 * math.log(2) / 4)
    assert max_log_prob(log_probs).exp().tolist() == pytest.approx([0.5, 0.5, 1, 0.5])


def test_ties_go_to_the_lowest_index() -> None:
    # row 1: target 2 ties with class 1 at .25 and comes after it; row 3: target 0 ties with class 1 and comes before
    assert [top_k_accuracy(TABLE.log(), TARGETS, k=k) for k in (1, 2, 3)] == [0.5, 0.75, 1.0]
    uniform = torch.full((4, 4), 0.25).log()
    assert [top_k_accuracy(uniform, torch.arange(4), k=k) for k in (1, 2, 3, 4)] == [0.25, 0.5, 0.75, 1.0]
    assert accuracy(uniform, torch.arange(4)) == 0.25


@given(**CASE, tied=st.booleans())
def test_agrees_with_sklearn_and_scipy(predictions, n: int, classes: int, seed: int, tied: bool) -> None:
    log_probs, targets = predictions(n, classes, seed, tied)
    p, y, labels = log_probs.exp().numpy(), targets.numpy(), np.arange(classes)
    assert accuracy(log_probs, targets) == pytest.approx(sklearn.metrics.accuracy_score(y, p.argmax(1)))
    assert nll(log_probs, targets) == pytest.approx(sklearn.metrics.log_loss(y, p, labels=labels), rel=1e-9)
    assert brier(log_probs, targets) == pytest.approx(np.mean(((p - np.eye(classes)[y]) ** 2).sum(1)), rel=1e-9)
    assert entropy_per_example(log_probs).numpy() == pytest.approx(entropy(p, axis=1), rel=1e-9)


@given(**CASE)
def test_top_k_agrees_with_sklearn_without_ties(predictions, n: int, classes: int, seed: int) -> None:
    log_probs, targets = predictions(n, classes + 1, seed)
    for k in range(1, classes + 1):
        expected = sklearn.metrics.top_k_accuracy_score(
            targets.numpy(), log_probs.numpy(), k=k, labels=np.arange(classes + 1)
        )
        assert top_k_accuracy(log_probs, targets, k=k) == pytest.approx(expected)
    assert top_k_accuracy(log_probs, targets, k=classes + 1) == 1.0


def test_agrees_with_torchmetrics(predictions, torchmetrics_classification: ModuleType) -> None:
    log_probs, targets = predictions(500, 6, 0)
    for k in (1, 3):
        expected = torchmetrics_classification.multiclass_accuracy(
            log_probs.exp(), targets, num_classes=6, average="micro", top_k=k
        )
        assert top_k_accuracy(log_probs, targets, k=k) == pytest.approx(expected.item(), abs=1e-6)


@given(**CASE, tied=st.booleans())
def test_top_1_is_accuracy(predictions, n: int, classes: int, seed: int, tied: bool) -> None:
    log_probs, targets = predictions(n, classes, seed, tied)
    assert top_k_accuracy(log_probs, targets, k=1) == accuracy(log_probs, targets)


@given(**CASE, limit=st.integers(1, 100), cut=st.integers(0, 60))
def test_chunks_do_not_change_the_result(predictions, n: int, classes: int, seed: int, limit: int, cut: int) -> None:
    log_probs, targets = predictions(n, classes, seed)
    halves = [half for half in (slice(0, cut), slice(cut, n)) if len(targets[half])]
    for metric in (accuracy, nll, brier):
        whole = metric(log_probs, targets)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(chunks, "CHUNK_ELEMENTS", limit)
            assert metric(log_probs, targets) == whole
        parts = [(metric(log_probs[half], targets[half]), len(targets[half])) for half in halves]
        assert merge_means(parts) == pytest.approx(whole, rel=1e-12)


def test_probability_zero() -> None:
    log_probs = from_probs(torch.tensor([[1.0, 0.0], [0.5, 0.5]]))
    assert nll(log_probs, torch.tensor([1, 0])) == math.inf
    assert brier(log_probs, torch.tensor([1, 0])) == pytest.approx(1.25)
    assert predictive_entropy(log_probs) == pytest.approx(math.log(2) / 2)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float16, 2e-3), (torch.bfloat16, 2e-2), (torch.float32, 1e-6)])
def test_low_precision_input_is_accumulated_in_float64(predictions, dtype: torch.dtype, tolerance: float) -> None:
    log_probs, targets = predictions(4000, 5, 0)
    rounded = log_probs.to(dtype)
    for metric in (nll, brier):
        assert metric(rounded, targets) == pytest.approx(metric(log_probs, targets), rel=tolerance)
    exact = -rounded.double()[torch.arange(4000), targets].mean().item()
    assert nll(rounded, targets) == pytest.approx(exact, rel=1e-12)


def test_a_million_rows_have_the_known_answer() -> None:
    row = torch.tensor([0.55] + [0.05] * 9).log()
    log_probs = row.expand(1_000_000, 10)
    targets = torch.arange(1_000_000) % 10
    assert accuracy(log_probs, targets) == 0.1
    assert nll(log_probs, targets) == pytest.approx(-(math.log(0.55) + 9 * math.log(0.05)) / 10, rel=1e-6)
    assert brier(log_probs, targets) == pytest.approx(0.325 - 2 * 0.1 + 1, rel=1e-6)


@pytest.mark.parametrize("metric", WITH_TARGETS)
def test_empty_input_is_refused(metric) -> None:
    with pytest.raises(ValueError, match=r"must be .* with at least one row"):
        metric(torch.zeros(0, 3), torch.zeros(0, dtype=torch.long))


def test_single_class() -> None:
    log_probs, targets = torch.zeros(3, 1), torch.zeros(3, dtype=torch.long)
    assert (accuracy(log_probs, targets), nll(log_probs, targets), brier(log_probs, targets)) == (1.0, 0.0, 0.0)


@pytest.mark.parametrize("k", [0, 4])
def test_k_outside_the_classes_is_refused(k: int) -> None:
    with pytest.raises(ValueError, match=f"k={k} must be between 1 and the number of classes 3; lower k"):
        top_k_accuracy(TABLE.log(), TARGETS, k=k)


def test_the_default_of_k_is_5(predictions) -> None:
    log_probs, targets = predictions(500, 8, 0)
    assert top_k_accuracy(log_probs, targets) == top_k_accuracy(log_probs, targets, k=5)
    assert top_k_accuracy(log_probs, targets) != top_k_accuracy(log_probs, targets, k=6)
