"""The rule of the IVON of 2021: Algorithm 1 with its two differences, in NumPy, and IVON where they vanish."""

import math

import numpy as np
import torch

from varlearn.core import ivon_2021, update
from varlearn.core.vogn import Hyper

N = 5
WIDE = {"dtype": torch.float64}


def start() -> update.Gaussian:
    return update.Gaussian(torch.linspace(-1, 1, N, **WIDE), torch.zeros(N, **WIDE), torch.full((N,), 0.4, **WIDE))


def test_the_step_is_algorithm_1_with_damping_in_line_3_and_decay_in_line_4() -> None:
    random = np.random.default_rng(0)
    lr, delta, gamma, beta1, beta2 = 0.1, 0.2, 0.3, 0.8, 0.9
    q, (m, g, h) = start(), (part.numpy().copy() for part in start())
    for t in range(1, 21):
        grad, estimate = random.normal(size=(2, N))
        debias = 1.0 - beta1**t
        hyper = Hyper(lr, delta, gamma, beta1, 1.0 - beta1, beta2, math.inf, debias)
        q = ivon_2021.step(q, torch.from_numpy(grad), torch.from_numpy(estimate), hyper)
        damped = estimate + gamma
        g = beta1 * g + (1.0 - beta1) * (grad + delta * m)
        h = beta2 * h + (1.0 - beta2) * damped + 0.5 * (1.0 - beta2) ** 2 * (h - damped) ** 2 / (h + delta)
        m = m - lr * (g / debias) / (h + delta)
    for found, expected in zip(q, (m, g, h), strict=True):
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)


def test_without_damping_and_momentum_it_is_ivon() -> None:
    grad, estimate = torch.randn(2, N, **WIDE)
    old = ivon_2021.step(start(), grad, estimate, Hyper(0.1, 0.2, 0.0, 0.0, 1.0, 0.9, math.inf, 1.0))
    new = update.step(start(), grad, estimate, update.Hyper(0.1, 1.0, 0.2, 0.0, 0.9, math.inf, 1.0))
    torch.testing.assert_close(old.mean, new.mean, rtol=1e-14, atol=1e-14)
    torch.testing.assert_close(old.hess, new.hess, rtol=1e-14, atol=1e-14)


def test_damping_raises_where_h_settles() -> None:
    q = start()
    for _ in range(2000):
        q = ivon_2021.step(
            q, torch.zeros(N, **WIDE), torch.ones(N, **WIDE), Hyper(0.0, 0.1, 0.5, 0.9, 0.1, 0.99, math.inf, 1.0)
        )
    torch.testing.assert_close(q.hess, torch.full((N,), 1.5, **WIDE))
