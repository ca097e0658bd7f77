"""The rule of bSAM: its published form with s = h + delta, in NumPy."""

import math

import numpy as np
import torch

from varlearn.core import bsam, update
from varlearn.core.vogn import Hyper

N = 5
WIDE = {"dtype": torch.float64}


def test_the_step_is_the_published_one_with_s_as_h_and_delta() -> None:
    random = np.random.default_rng(0)
    lr, rho, delta, gamma, beta1, beta2 = 0.1, 0.05, 0.2, 0.3, 0.8, 0.9
    q = update.Gaussian(torch.linspace(-1, 1, N, **WIDE), torch.zeros(N, **WIDE), torch.full((N,), 0.4, **WIDE))
    m, b, s = q.mean.numpy().copy(), np.zeros(N), np.full(N, 0.4 + delta)
    hyper = Hyper(lr, delta, gamma, beta1, 1.0 - beta1, beta2, math.inf, 1.0)
    for _ in range(20):
        g, slope = random.normal(size=(2, N))  # at the sample, and 1/2 of the curvature of a quadratic loss
        sample = torch.from_numpy(g)
        moved = q.mean + bsam.perturbation(sample, q.hess, rho, delta)
        q = bsam.step(q, torch.from_numpy(slope) * moved, bsam.estimate(sample, q.hess, delta), hyper)
        at = slope * (m + rho * g / s)
        b = beta1 * b + (1.0 - beta1) * (at + delta * m)
        s = beta2 * s + (1.0 - beta2) * (np.sqrt(s) * np.abs(g) + delta + gamma)
        m = m - lr * b / s
    np.testing.assert_allclose(q.mean.numpy(), m, rtol=1e-12)
    np.testing.assert_allclose(q.hess.numpy() + delta, s, rtol=1e-12)
