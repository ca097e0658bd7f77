"""Counts, areas and ranks against brute force over all pairs and thresholds."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import rankdata

from varlearn.metrics.ranking import area_under_roc, average_precision, midranks, rank_counts

SCORES = st.lists(st.integers(-4, 4).map(float) | st.sampled_from([-np.inf, np.inf]), min_size=1, max_size=25)


@given(SCORES, SCORES)
def test_counts_and_areas_by_brute_force(positive: list[float], negative: list[float]) -> None:
    counts = rank_counts(torch.tensor(positive), torch.tensor(negative))
    thresholds = sorted({*positive, *negative}, reverse=True)
    assert counts.true.tolist() == [sum(s >= t for s in positive) for t in thresholds]
    assert counts.false.tolist() == [sum(s >= t for s in negative) for t in thresholds]
    wins = sum((a > b) + 0.5 * (a == b) for a in positive for b in negative)
    assert area_under_roc(counts) == wins / (len(positive) * len(negative))
    precision = [t / (t + f) for t, f in zip(counts.true.tolist(), counts.false.tolist(), strict=True)]
    gained = np.diff([0, *counts.true.tolist()]) / len(positive)
    assert average_precision(counts) == pytest.approx(float(gained @ precision), rel=1e-12)


@given(SCORES)
def test_midranks_are_scipys(values: list[float]) -> None:
    assert midranks(torch.tensor(values)).tolist() == rankdata(values).tolist()
