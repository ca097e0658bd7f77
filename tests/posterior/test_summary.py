import math

import pytest
import torch

from varlearn.posterior import DiagGaussian, Mixture, Point, marginal_std


def test_totals_weigh_tensors_by_their_size() -> None:
    q = DiagGaussian(
        {"a": torch.zeros(3), "b": torch.zeros(1), "none": torch.zeros(0)},
        {"a": torch.ones(3), "b": torch.tensor([0.25]), "none": torch.zeros(0)},
        ess=1.0,
    )
    total, tensors = marginal_std(q)
    assert total == (4, 1.0, pytest.approx(1.25), 2.0)
    assert tensors["a"] == (3, 1.0, 1.0, 1.0)
    assert "none" not in tensors


def test_points_and_mixtures() -> None:
    points = [Point({"w": torch.tensor([value])}) for value in (-1.0, 1.0)]
    assert marginal_std(points[0]).total.max == 0.0
    assert marginal_std(Mixture(points)).total.mean == 1.0


def test_a_posterior_without_entries() -> None:
    total = marginal_std(Point({"w": torch.zeros(0)})).total
    assert total.count == 0
    assert math.isnan(total.mean)
