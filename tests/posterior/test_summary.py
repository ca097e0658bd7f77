import math

import pytest
import torch

from varlearn.posterior import DiagGaussian, Mixture, Point, layer_scales, marginal_std


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


def test_scales_of_layers() -> None:
    hess = torch.linspace(1.0, 4.0, 11)
    q = DiagGaussian({"w": torch.full((11,), 2.0), "b": torch.zeros(1)}, {"w": hess, "b": torch.ones(1)}, ess=1.0)
    w, b = layer_scales(q)
    assert (w.name, w.count, w.weight_rms) == ("w", 11, 2.0)
    assert w.hess_median == pytest.approx(2.5)
    assert (w.std_low, w.std_median, w.std_high) == pytest.approx((3.7**-0.5, 2.5**-0.5, 1.3**-0.5))
    assert b.std_median == 1.0
    assert [layer.name for layer in layer_scales(q, most=1)] == ["w"]  # the larger one
    assert layer_scales(Point({"w": torch.ones(2)}))[0].hess_median is None
