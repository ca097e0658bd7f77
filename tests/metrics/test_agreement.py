"""Distances between predictives against tables worked by hand and scipy."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.stats import wasserstein_distance

from varlearn.metrics import (
    agreement,
    chunks,
    total_variation,
    total_variation_per_example,
    w2,
    w2_competition,
    wasserstein_per_example,
)

SIZES = {"s": st.integers(1, 12), "r": st.integers(1, 12), "n": st.integers(1, 6), "seed": st.integers(0, 10_000)}


def samples(s: int, n: int, seed: int, tied: bool = False) -> torch.Tensor:
    values = 2 * torch.randn(s, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return values.round() if tied else values


def test_hand_worked_table() -> None:
    p = torch.tensor([[0.5, 0.25, 0.25], [0.0, 1.0, 0.0]], dtype=torch.float64).log()
    q = torch.tensor([[0.25, 0.25, 0.5], [0.0, 0.5, 0.5]], dtype=torch.float64).log()
    assert agreement(p, q) == 0.5  # the tie of the last row is class 1
    assert total_variation(p, q) == pytest.approx((0.25 + 0.5) / 2)
    assert total_variation_per_example(p, q).tolist() == pytest.approx([0.25, 0.5])
    a, b = torch.tensor([[0.0, 0.0], [2.0, 0.0]]), torch.tensor([[1.0, 3.0], [5.0, 3.0]])
    assert w2_competition(a, b) == pytest.approx(((1 + 3) / 2 + 3) / 2)
    assert w2(a, b) == pytest.approx((math.sqrt((1 + 9) / 2) + 3) / 2)


@given(n=st.integers(1, 40), classes=st.integers(2, 6), seed=st.integers(0, 10_000), limit=st.integers(1, 60))
def test_total_variation_and_agreement_by_numpy(predictions, n: int, classes: int, seed: int, limit: int) -> None:
    (p, _), (q, _) = predictions(n, classes, seed), predictions(n, classes, seed + 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "CHUNK_ELEMENTS", limit)
        distance, same = total_variation(p, q), agreement(p, q)
    assert distance == pytest.approx(np.abs(p.exp().numpy() - q.exp().numpy()).sum(1).mean() / 2, rel=1e-12)
    assert same == np.mean(p.numpy().argmax(1) == q.numpy().argmax(1))
    assert total_variation(q, p) == distance
    assert (total_variation(p, p), agreement(p, p)) == (0.0, 1.0)


@given(**SIZES, tied=st.booleans(), limit=st.integers(1, 100))
def test_w2_competition_is_scipys_wasserstein_1(s: int, r: int, n: int, seed: int, tied: bool, limit: int) -> None:
    a, b = samples(s, n, seed, tied), samples(r, n, seed + 1, tied)
    expected = np.mean([wasserstein_distance(a[:, i].numpy(), b[:, i].numpy()) for i in range(n)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "CHUNK_ELEMENTS", limit)
        assert w2_competition(a, b) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize(("s", "r"), [(1, 1), (2, 3), (4, 6), (5, 5), (7, 3)])
def test_w2_is_the_cost_of_the_best_transport_plan(s: int, r: int) -> None:
    a, b = samples(s, 1, 0)[:, 0].numpy(), samples(r, 1, 1)[:, 0].numpy()
    cost = (a[:, None] - b[None, :]) ** 2
    rows, columns = np.kron(np.eye(s), np.ones(r)), np.kron(np.ones(s), np.eye(r))
    plan = linprog(cost.ravel(), A_eq=np.vstack([rows, columns]), b_eq=np.r_[np.full(s, 1 / s), np.full(r, 1 / r)])
    assert w2(torch.tensor(a)[:, None], torch.tensor(b)[:, None]) == pytest.approx(math.sqrt(plan.fun), abs=1e-7)


@given(**SIZES, shift=st.floats(-100, 100))
def test_wasserstein_invariants(s: int, r: int, n: int, seed: int, shift: float) -> None:
    a, b = samples(s, n, seed), samples(r, n, seed + 1)
    assert w2_competition(a, b) <= w2(a, b) + 1e-12
    assert w2(a, b) == pytest.approx(w2(b, a), abs=1e-12)
    assert w2(a, a) == 0
    assert w2(a, a.repeat(3, 1)) == 0  # the same distribution in other numbers of samples
    assert w2(a, a + shift) == pytest.approx(abs(shift), abs=1e-9)


def test_w2_of_gaussian_samples_nears_the_closed_form() -> None:
    # W2^2 = (m1 - m2)^2 + (s1 - s2)^2 = 9 + 1 between N(0, 1) and N(3, 2^2)
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(200_000, 1, generator=generator)
    b = 3 + 2 * torch.randn(200_000, 1, generator=generator)
    assert w2(a, b) == pytest.approx(math.sqrt(10), abs=0.02)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(predictions, dtype: torch.dtype) -> None:
    (p, _), (q, _) = predictions(500, 4, 0), predictions(500, 4, 1)
    assert total_variation(p.to(dtype), q.to(dtype)) == pytest.approx(total_variation(p, q), abs=0.01)
    a, b = samples(5, 9, 0).to(dtype), samples(7, 9, 1).to(dtype)
    assert w2(a, b) == w2(a.double(), b.double())


def test_refusals() -> None:
    p, one = torch.zeros(2, 1), torch.ones(3, 2)
    with pytest.raises(ValueError, match=r"log_probs has shape \(2, 1\) and reference \(3, 1\), must be equal"):
        agreement(p, torch.zeros(3, 1))
    with pytest.raises(ValueError, match="reference row 1 has probabilities that sum to"):
        total_variation(p, torch.tensor([[0.0], [1.0]]))
    with pytest.raises(ValueError, match="at least one row"):
        agreement(torch.zeros(0, 1), torch.zeros(0, 1))
    with pytest.raises(ValueError, match="samples has 2 columns and reference 3, must be equal"):
        w2(one, torch.ones(3, 3))
    with pytest.raises(ValueError, match="reference row 2 is nan in column 1, must be finite"):
        w2(one, torch.tensor([[1.0, 1.0], [1.0, 1.0], [1.0, float("nan")]]))
    with pytest.raises(ValueError, match=r"samples has shape .* at least one row"):
        w2_competition(torch.zeros(0, 2), one)
    with pytest.raises(ValueError, match="order=0 must be >= 1"):
        wasserstein_per_example(one, one, order=0)
