"""Mixtures of samplers: each part starts from its own weights, and counts with its own weight."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from varlearn.posterior import DiagGaussian, Mixture, Point
from varlearn.prediction import AtMean, Dropout, Linearized, SamplerMixture, predict_regression


def point(value: float) -> Point:
    return Point({"1.weight": torch.tensor([[value]])})


NET = nn.Sequential(nn.Dropout(0.5), nn.Linear(1, 1, bias=False))
BATCHES = [(torch.ones(4, 1), torch.zeros(4, 1))]


def test_members_with_dropout_have_their_own_weights() -> None:
    both = SamplerMixture([AtMean(point(value), Dropout()) for value in (1.0, 10.0)], (0.5, 0.5))
    found = predict_regression(NET, both, BATCHES, samples=50, noise_variance=1.0, keep_samples=True)
    values = found.sample_means
    assert values is not None
    assert set(values.flatten().tolist()) == {0.0, 2.0, 20.0}
    assert found.mean.mean().item() == pytest.approx(5.5, abs=2.0)


def test_posteriors_and_samplers_may_be_mixed_and_dropout_does_not_stay_on() -> None:
    parts = [AtMean(point(1.0), Dropout()), point(3.0)]
    found = predict_regression(
        NET, SamplerMixture(parts, (0.25, 0.75)), BATCHES, samples=40, noise_variance=1.0, keep_samples=True
    )
    assert found.sample_means is not None
    assert set(found.sample_means[40:].flatten().tolist()) == {3.0}  # a point needs one draw
    assert torch.allclose(found.sample_weights, torch.tensor([0.25 / 40] * 40 + [0.75]).double())


def test_it_is_the_mixture_where_parts_are_posteriors() -> None:
    gaussians = [
        DiagGaussian({"1.weight": torch.full((1, 1), value)}, {"1.weight": torch.ones(1, 1)}, ess=4.0)
        for value in (0.0, 2.0)
    ]
    mixed = predict_regression(NET, SamplerMixture(gaussians, (0.5, 0.5)), BATCHES, samples=8, noise_variance=1.0)
    whole = predict_regression(NET, Mixture(gaussians), BATCHES, samples=8, noise_variance=1.0)
    assert torch.equal(mixed.mean, whole.mean)
    assert torch.equal(mixed.variance, whole.variance)


def test_a_draw_comes_from_a_part_with_the_probability_of_its_weight() -> None:
    both = SamplerMixture([AtMean(point(1.0), Linearized(point(1.0))), point(3.0)], (0.25, 0.75))
    both.start(NET.eval())
    values = torch.tensor([both.draw(NET, 0, index)(torch.ones(1, 1)).item() for index in range(400)])
    assert (values == 3.0).double().mean().item() == pytest.approx(0.75, abs=0.07)
