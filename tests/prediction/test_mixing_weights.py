"""Learned weights of a mixture: the optimum's conditions, closed forms, and what is refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from varlearn.posterior import Point
from varlearn.prediction import mixing_weights, predict, predict_regression, target_log_probs


def test_the_gradient_vanishes_where_weight_is_and_is_smaller_elsewhere() -> None:
    """At the maximum over the simplex mean_i p_ki / sum_j w_j p_ji is 1 where w_k > 0 and at most 1 elsewhere."""
    log_p = torch.randn(5, 300, dtype=torch.float64).sub(1)
    log_p[4] = log_p[0] - 3.0  # nowhere better than the first
    w = mixing_weights(log_p, steps=20_000)
    slope = (log_p - (log_p + w.log()[:, None]).logsumexp(0)).exp().mean(1)
    assert w.sum().item() == pytest.approx(1.0)
    assert w[4] < 1e-6
    assert torch.allclose(slope[w > 1e-3], torch.ones(int((w > 1e-3).sum()), dtype=torch.float64), atol=1e-4)
    assert (slope <= 1 + 1e-4).all()


def test_two_members_have_a_closed_form() -> None:
    """A share a of examples has p = (.9, .3), the others (.1, .5): a .6 / (.3 + .6 w) = (1 - a) .4 / (.5 - .4 w)."""
    p = torch.tensor([[0.9] * 7 + [0.1] * 3, [0.3] * 7 + [0.5] * 3], dtype=torch.float64)
    a, (b, c), (d, e) = 0.7, (0.3, 0.6), (0.5, 0.4)
    best = (a * c * d - (1 - a) * e * b) / (c * e)
    assert mixing_weights(p.log())[0].item() == pytest.approx(min(1.0, best), abs=1e-5)


def test_equal_members_keep_equal_weights_and_impossible_targets_are_survived() -> None:
    row = torch.randn(20).double()
    assert torch.allclose(mixing_weights(torch.stack([row] * 4)), torch.full((4,), 0.25, dtype=torch.float64))
    row[3] = -torch.inf
    assert mixing_weights(torch.stack([row, torch.full((20,), -9.0).double()]))[1] > 0.01


@pytest.mark.parametrize(
    ("log_probs", "message"),
    [
        (torch.zeros(3), "must be"),
        (torch.zeros(2, 0), "must be"),
        (torch.full((2, 3), torch.nan), "NaN"),
        (torch.full((2, 3), -torch.inf), "probability 0"),
    ],
)
def test_refused(log_probs: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mixing_weights(log_probs)


def test_target_log_probs_of_a_classifier_and_of_a_regression() -> None:
    net, x = nn.Linear(1, 2, bias=False), torch.ones(3, 1)
    point = Point({"weight": torch.tensor([[0.0], [1.0]])})
    found = predict(net, point, [(x, torch.tensor([0, 1, 1]))], samples=1)
    logits = torch.tensor([0.0, 1.0]).log_softmax(0)
    assert torch.allclose(target_log_probs(found), logits[[0, 1, 1]])
    line = nn.Linear(1, 1, bias=False)
    real = predict_regression(
        line, Point({"weight": torch.ones(1, 1)}), [(x, torch.zeros(3, 1))], samples=1, noise_variance=1.0
    )
    expected = torch.distributions.Normal(1.0, 1.0).log_prob(torch.zeros(3))
    assert torch.allclose(target_log_probs(real).float(), expected)
    with pytest.raises(ValueError, match="without targets"):
        target_log_probs(predict(net, point, [x], samples=1))
