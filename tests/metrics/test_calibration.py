"""Calibration errors against tables worked by hand, a loop over bins, and torchmetrics."""

from types import ModuleType

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from varlearn.metrics import (
    accuracy,
    adaptive_ece,
    chunks,
    classwise_ece,
    ece,
    ece_from_curve,
    mce,
    mce_from_curve,
    merge_reliability,
    reliability_curve,
)

CASE = {
    "n": st.integers(1, 80),
    "classes": st.integers(2, 6),
    "seed": st.integers(0, 10_000),
    "bins": st.integers(1, 25),
}
METRICS = [ece, mce, adaptive_ece, classwise_ece]

# confidence .55 right, .65 wrong, .85 right, .95 right
TABLE = torch.tensor([[0.55, 0.45], [0.65, 0.35], [0.85, 0.15], [0.95, 0.05]], dtype=torch.float64).log()
TARGETS = torch.tensor([0, 1, 0, 0])


def test_hand_worked_table() -> None:
    # 20 bins: each example is alone in its bin, gaps .45 .65 .15 .05
    assert ece(TABLE, TARGETS) == pytest.approx(1.3 / 4)
    assert mce(TABLE, TARGETS) == pytest.approx(0.65)
    # 2 bins: all in (.5, 1], accuracy .75, mean confidence .75
    assert ece(TABLE, TARGETS, bins=2) == pytest.approx(0)
    # equal mass, 2 bins: |.5 - .6| and |1 - .9|
    assert adaptive_ece(TABLE, TARGETS, bins=2) == pytest.approx(0.1)
    # class 1 mirrors class 0, so the class-wise error is that of class 0
    assert classwise_ece(TABLE, TARGETS) == pytest.approx(1.3 / 4)


def test_curve_of_the_table() -> None:
    curve = reliability_curve(TABLE, TARGETS, bins=5)
    assert curve.edges.tolist() == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1])
    assert curve.count.tolist() == [0, 0, 1, 1, 2]
    assert curve.confidence.tolist() == pytest.approx([np.nan, np.nan, 0.55, 0.65, 0.9], nan_ok=True)
    assert curve.accuracy.tolist() == pytest.approx([np.nan, np.nan, 1, 0, 1], nan_ok=True)


def test_an_upper_edge_belongs_to_its_bin() -> None:
    half = torch.tensor([[0.5, 0.5]], dtype=torch.float64).log()  # exp(log(.5)) is .5 exactly
    assert reliability_curve(half, torch.tensor([0]), bins=2).count.tolist() == [1, 0]
    above = torch.tensor([[0.5 + 1e-10, 0.5 - 1e-10]], dtype=torch.float64).log()
    assert reliability_curve(above, torch.tensor([0]), bins=2).count.tolist() == [0, 1]
    sure = torch.tensor([[0.0, -float("inf")]])
    assert reliability_curve(sure, torch.tensor([0]), bins=2).count.tolist() == [0, 1]


def loop_ece(confidence: np.ndarray, hit: np.ndarray, bins: int) -> tuple[float, float]:
    edges = np.linspace(0, 1, bins + 1)
    total, worst = 0.0, 0.0
    for b in range(bins):
        inside = (confidence > edges[b]) & (confidence <= edges[b + 1])
        inside |= (b == 0) & (confidence <= 0) | (b == bins - 1) & (confidence > 1)
        if inside.any():
            gap = abs(hit[inside].mean() - confidence[inside].mean())
            total, worst = total + gap * inside.mean(), max(worst, gap)
    return total, worst


@given(**CASE, tied=st.booleans())
def test_agrees_with_a_loop_over_bins(predictions, n: int, classes: int, seed: int, bins: int, tied: bool) -> None:
    log_probs, targets = predictions(n, classes, seed, tied)
    p = log_probs.exp().numpy()
    # torch's exp and not numpy's: they differ in the last bit, which decides at an edge
    expected = loop_ece(log_probs.amax(-1).exp().numpy(), (p.argmax(1) == targets.numpy()).astype(float), bins)
    assert (ece(log_probs, targets, bins), mce(log_probs, targets, bins)) == pytest.approx(expected, abs=1e-12)
    per_class = [loop_ece(p[:, c], (targets == c).double().numpy(), bins)[0] for c in range(classes)]
    assert classwise_ece(log_probs, targets, bins) == pytest.approx(np.mean(per_class), abs=1e-12)


@given(**CASE)
def test_adaptive_agrees_with_splitting_the_sorted_list(
    predictions, n: int, classes: int, seed: int, bins: int
) -> None:
    log_probs, targets = predictions(n, classes, seed)  # without ties
    confidence, hit = log_probs.amax(-1).exp().numpy(), (log_probs.argmax(-1) == targets).double().numpy()
    order = np.argsort(confidence)
    groups = np.split(order, [b * n // bins for b in range(1, bins)])
    expected = sum(abs(hit[g].sum() - confidence[g].sum()) for g in groups) / n
    assert adaptive_ece(log_probs, targets, bins) == pytest.approx(expected, abs=1e-12)


def test_agrees_with_torchmetrics(predictions, torchmetrics_classification: ModuleType) -> None:
    log_probs, targets = predictions(3000, 5, 1)
    for bins in (10, 20):
        for ours, norm in ((ece, "l1"), (mce, "max")):
            theirs = torchmetrics_classification.multiclass_calibration_error(
                log_probs.exp(), targets, num_classes=5, n_bins=bins, norm=norm
            )
            assert ours(log_probs, targets, bins) == pytest.approx(theirs.item(), abs=1e-6)


@given(**CASE, tied=st.booleans())
def test_bounds_and_row_order(predictions, n: int, classes: int, seed: int, bins: int, tied: bool) -> None:
    log_probs, targets = predictions(n, classes, seed, tied)
    shuffled = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    for metric in METRICS:
        value = metric(log_probs, targets, bins)
        assert 0 <= value <= 1 + 1e-12
        assert metric(log_probs[shuffled], targets[shuffled], bins) == pytest.approx(value, abs=1e-12)
    assert ece(log_probs, targets, bins) <= mce(log_probs, targets, bins) + 1e-12
    whole = abs(accuracy(log_probs, targets) - log_probs.amax(-1).exp().mean().item())
    assert ece(log_probs, targets, bins) >= whole - 1e-12  # merging bins can only cancel gaps
    assert ece(log_probs, targets, 1) == pytest.approx(whole, abs=1e-12)


@given(**CASE, cut=st.integers(1, 80), limit=st.integers(1, 50))
def test_curves_of_chunks_merge(predictions, n: int, classes: int, seed: int, bins: int, cut: int, limit: int) -> None:
    log_probs, targets = predictions(n, classes, seed)
    whole = reliability_curve(log_probs, targets, bins)
    parts = [reliability_curve(log_probs[i : i + cut], targets[i : i + cut], bins) for i in range(0, n, cut)]
    merged = merge_reliability(parts)
    for a, b in zip(merged, whole, strict=True):
        torch.testing.assert_close(a, b, equal_nan=True)
    assert ece_from_curve(merged) == pytest.approx(ece(log_probs, targets, bins), abs=1e-12)
    assert mce_from_curve(merged) == pytest.approx(mce(log_probs, targets, bins), abs=1e-12)
    classwise = classwise_ece(log_probs, targets, bins)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "CHUNK_ELEMENTS", limit)
        assert classwise_ece(log_probs, targets, bins) == pytest.approx(classwise, abs=1e-12)


def constant(n: int) -> tuple[Tensor, Tensor]:
    return torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64).log().expand(n, 3), torch.arange(n) % 2


def test_constant_predictions_share_one_bin() -> None:
    log_probs, targets = constant(10)
    for metric in (ece, mce, adaptive_ece):
        assert metric(log_probs, targets) == pytest.approx(0.2)
    assert classwise_ece(log_probs, targets) == pytest.approx((0.2 + 0.3 + 0.1) / 3)


def test_calibrated_predictions_of_a_million_rows() -> None:
    generator = torch.Generator().manual_seed(0)
    probs = torch.rand(1_000_000, 10, generator=generator).pow(3)
    probs /= probs.sum(-1, keepdim=True)
    targets = torch.multinomial(probs, 1, generator=generator)[:, 0]
    log_probs = probs.log()
    assert ece(log_probs, targets) < 3e-3  # the noise of 20 bins at this n, about sqrt(20 p (1 - p) / n)
    assert adaptive_ece(log_probs, targets) < 3e-3
    assert classwise_ece(log_probs, targets) < 2e-3
    assert ece(log_probs, (targets + 1) % 10) > 0.1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(predictions, dtype: torch.dtype) -> None:
    log_probs, targets = predictions(4000, 5, 0)
    for metric in METRICS:
        # rounding moves examples across edges, each by the gap of one example
        assert metric(log_probs.to(dtype), targets, 4) == pytest.approx(metric(log_probs, targets, 4), abs=5e-3)


@pytest.mark.parametrize("metric", METRICS)
def test_refusals(metric) -> None:
    with pytest.raises(ValueError, match="bins=0 must be >= 1; the paper's number is 20"):
        metric(TABLE, TARGETS, bins=0)
    with pytest.raises(ValueError, match="at least one row"):
        metric(torch.zeros(0, 2), torch.zeros(0, dtype=torch.long))


def test_curves_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="curves is empty"):
        merge_reliability([])
    with pytest.raises(ValueError, match=r"bins differ: \[2, 3\], must be equal"):
        merge_reliability([reliability_curve(TABLE, TARGETS, b) for b in (2, 3)])


@pytest.mark.parametrize("metric", METRICS)
def test_20_bins_are_the_default(metric) -> None:
    generator = torch.Generator().manual_seed(2)
    log_probs = torch.randn(500, 3, generator=generator).log_softmax(1)
    targets = torch.randint(3, (500,), generator=generator)
    assert metric(log_probs, targets) == metric(log_probs, targets, 20)
    assert metric(log_probs, targets) != metric(log_probs, targets, 21)
    assert len(reliability_curve(log_probs, targets).count) == 20


@pytest.mark.parametrize("metric", METRICS)
def test_targets_that_are_no_classes_are_refused(metric) -> None:
    with pytest.raises(ValueError, match=r"targets row 1 is 2, must be a class in 0 .. 1"):
        metric(TABLE, torch.tensor([0, 2, 0, 0]))
    with pytest.raises(ValueError, match="targets has 3 rows and log_probs 4"):
        metric(TABLE, TARGETS[:3])
