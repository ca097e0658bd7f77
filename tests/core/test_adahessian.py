"""The rule of AdaHessian: Adam where the diagonal is the gradient, NumPy elsewhere."""

import numpy as np
import pytest
import torch
from torch import nn

from varlearn.core import adahessian
from varlearn.core.adahessian import Hyper, Moments


def zeros(count: int) -> Moments:
    wide = {"dtype": torch.float64}
    return Moments(torch.linspace(-1, 1, count, **wide), torch.zeros(count, **wide), torch.zeros(count, **wide))


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_with_the_gradient_as_the_diagonal_it_is_adamw(decay: float) -> None:
    q = zeros(6)
    weight = nn.Parameter(q.mean.clone())
    adamw = torch.optim.AdamW([weight], lr=0.1, betas=(0.9, 0.95), weight_decay=decay)
    for step in range(1, 11):
        weight.grad = torch.randn(6, dtype=torch.float64)
        adamw.step()
        q = adahessian.step(q, weight.grad, weight.grad, Hyper(0.1, 0.9, 0.95, 1e-8, decay, 1.0, step))
    torch.testing.assert_close(q.mean, weight.detach(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_the_step_is_the_formula(power: float) -> None:
    random, q = np.random.default_rng(1), zeros(6)
    m, first, second = (part.numpy().copy() for part in q)
    for t in range(1, 11):
        grad, diagonal = random.normal(size=(2, 6))
        q = adahessian.step(
            q, torch.from_numpy(grad), torch.from_numpy(diagonal), Hyper(0.05, 0.8, 0.9, 1e-3, 0.1, power, t)
        )
        first, second = 0.8 * first + 0.2 * grad, 0.9 * second + 0.1 * diagonal**2
        hat = second / (1 - 0.9**t)
        m = (1 - 0.05 * 0.1) * m - 0.05 * (first / (1 - 0.8**t)) / (hat ** (power / 2) + 1e-3)
    np.testing.assert_allclose(q.mean.numpy(), m, rtol=1e-12)


def test_the_sign_of_the_curvature_does_not_matter_and_unknown_weights_stay() -> None:
    grad = torch.tensor([1.0, 0.0], dtype=torch.float64)
    ends = [
        adahessian.step(zeros(2), grad, sign * grad, Hyper(0.1, 0.9, 0.99, 0.0, 0.0, 1.0, 1)).mean for sign in (1, -1)
    ]
    assert torch.equal(*ends)
    assert ends[0][1] == 1.0
