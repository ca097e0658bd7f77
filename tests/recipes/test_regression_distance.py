"""Distances to draws of a posterior: regressions whose posterior is a Gaussian with a diagonal precision."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from varlearn.data.posteriordb import ReferenceRegression
from varlearn.recipes import regression_distance as module


def orthogonal(name: str, root: Any = None) -> ReferenceRegression:
    """40 examples, two orthogonal features, sigma = 0.5, flat prior: beta ~ N(beta_hat, sigma^2 / 40) each."""
    source = torch.Generator().manual_seed(1)
    signs = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]], dtype=torch.float64).repeat(10, 1)
    targets = signs @ torch.tensor([1.0, -2.0], dtype=torch.float64)
    targets += 0.5 * torch.randn(40, generator=source, dtype=torch.float64)
    best = signs.T @ targets / 40
    beta = best + 0.5 / 40**0.5 * torch.randn(10_000, 2, generator=source, dtype=torch.float64)
    return ReferenceRegression(signs, targets, torch.cat([beta, torch.full((10_000, 1), 0.5).double()], 1))


def test_ivon_is_as_near_as_the_exact_posterior_and_its_mean_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "reference_regression", orthogonal)
    found = module.regression_distance("orthogonal", steps=2_000)
    assert found["diagonal"]["w2_competition"] < 0.1  # two sets of 1,000 draws of one distribution
    assert found["ivon"]["w2_competition"] < 0.2
    assert found["ivon@mean"]["w2_competition"] == pytest.approx((2 / torch.pi) ** 0.5, abs=0.05)  # E|z|
    assert found["ivon"]["w2"] >= found["ivon"]["w2_competition"]
    assert found["draws"] == 1_000


def test_the_sheet_has_three_rows_for_each_regression(monkeypatch: pytest.MonkeyPatch) -> None:
    one = {"w2_competition": 0.1, "w2": 0.2}
    values = {"examples": 3, "draws": 1_000, "ivon": one, "ivon@mean": one, "diagonal": one}
    monkeypatch.setattr(module, "regression_distance", lambda name: values)
    sheet = module.regression_sheet()
    assert len(sheet.rows) == 3 * 4
    assert sheet.rows[1][1:3] == ["IVON@mean", "1 draw"]
