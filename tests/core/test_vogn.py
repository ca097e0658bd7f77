"""The rule of VOGN: Equation 2 line by line in NumPy, and the two forms of its momentum."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from varlearn.core import update, vogn

N = 7


def equation_2(steps: int, own: SimpleNamespace, grads: np.ndarray, squares: np.ndarray) -> tuple[np.ndarray, ...]:
    """g <- beta1 g + ghat + s0 m / lambda, h <- beta2 h + (1 - beta2) hhat, m <- m - alpha g / (h + c), as printed."""
    m, g, h = np.full(N, 0.5), np.zeros(N), np.full(N, 0.3)
    c = own.damping + own.weight_decay
    for t in range(steps):
        g = own.beta1 * g + grads[t] + own.weight_decay * (m - own.prior_mean)
        h = own.beta2 * h + (1.0 - own.beta2) * squares[t]
        m = m - own.lr * g / (h + c)
    return m, g, h


@pytest.mark.parametrize("prior_mean", [0.0, 0.7])
def test_the_step_is_equation_2(prior_mean: float) -> None:
    random = np.random.default_rng(0)
    grads, squares = random.normal(size=(20, N)), random.normal(size=(20, N)) ** 2
    own = SimpleNamespace(lr=0.1, weight_decay=0.2, damping=0.05, beta1=0.8, beta2=0.9, prior_mean=prior_mean)
    hyper = vogn.Hyper(0.1, 0.2, 0.05, beta1=0.8, grad_weight=1.0, beta2=0.9, clip_radius=np.inf, debias=1.0)
    wide = {"dtype": torch.float64}
    q = update.Gaussian(torch.full((N,), 0.5, **wide), torch.zeros(N, **wide), torch.full((N,), 0.3, **wide))
    for t in range(20):
        q = vogn.step(q, torch.from_numpy(grads[t]), torch.from_numpy(squares[t]), hyper, prior_mean)
    for found, expected in zip(q, equation_2(20, own, grads, squares), strict=True):
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)


def test_an_averaged_momentum_at_ten_times_the_rate_moves_as_far_as_a_sum() -> None:
    steady = torch.ones(1, dtype=torch.float64)
    ends = []
    for lr, weight in ((0.01, 1.0), (0.1, 0.1)):
        q = update.Gaussian(torch.zeros(1).double(), torch.zeros(1).double(), torch.ones(1).double())
        for _ in range(50):
            hyper = vogn.Hyper(lr, 0.1, 0.0, 0.9, weight, 0.99, float("inf"), 1.0)
            q = vogn.step(q, steady, steady, hyper)
        ends.append(q.mean)
    torch.testing.assert_close(ends[0], ends[1])


def test_the_decay_lags_behind_in_the_momentum() -> None:
    """With a gradient of zero the first pull has the weight of the momentum; IVON's has its full strength at once."""
    q = update.Gaussian(torch.ones(1), torch.zeros(1), torch.ones(1))
    hyper = vogn.Hyper(0.1, 1.0, 0.0, 0.9, 0.1, 0.99, float("inf"), debias=1.0)
    after = vogn.step(q, torch.zeros(1), torch.ones(1), hyper)
    assert after.mean.item() == pytest.approx(1.0 - 0.1 * 0.1 / 2.0)
    ivon = update.Hyper(0.1, 1.0, 1.0, 0.9, 0.99, float("inf"), debias=1.0)
    assert update.step(q, torch.zeros(1), torch.ones(1), ivon).mean.item() == pytest.approx(1.0 - 0.1 / 2.0)


def test_huge_squares_saturate_and_the_clip_radius_bounds_the_step() -> None:
    q = update.Gaussian(torch.ones(2), torch.zeros(2), torch.full((2,), 1e-3))
    hyper = vogn.Hyper(0.5, 0.0, 1e-3, 0.0, 1.0, 0.5, clip_radius=0.1, debias=1.0)
    after = vogn.step(q, torch.tensor([1.0, 1e30]), torch.tensor([0.0, torch.finfo(torch.float32).max]), hyper)
    assert all(bool(part.isfinite().all()) for part in after)
    torch.testing.assert_close(after.mean, torch.tensor([0.95, 1.0]))
