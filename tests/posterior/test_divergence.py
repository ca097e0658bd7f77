import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from varlearn import IVON
from varlearn.core.update import kl_divergence
from varlearn.posterior import DiagGaussian, Point, kl, prune


def normal(mean: list[float], hess: list[float], ess: float = 10.0, weight_decay: float = 0.5) -> DiagGaussian:
    return DiagGaussian({"w": torch.tensor(mean)}, {"w": torch.tensor(hess)}, ess=ess, weight_decay=weight_decay)


numbers = st.floats(-5.0, 5.0, width=32)
scales = st.floats(0.125, 50.0, width=32)


@given(numbers, scales, numbers, scales)
def test_kl_of_normals(q_mean: float, q_hess: float, p_mean: float, p_hess: float) -> None:
    q, p = normal([q_mean], [q_hess]), normal([p_mean], [p_hess], ess=3.0)
    exact = torch.distributions.kl_divergence(
        *(torch.distributions.Normal(r.mean["w"].double(), r.precision["w"].double().rsqrt()) for r in (q, p))
    ).sum()
    torch.testing.assert_close(kl(q, p), exact, rtol=1e-6, atol=1e-9)
    assert kl(q, p) >= 0


def test_kl_to_the_prior_is_the_term_of_the_objective() -> None:
    q = DiagGaussian(
        {"a": torch.randn(5), "b": torch.randn(3)},
        {"a": torch.rand(5), "b": torch.rand(3)},
        ess={"a": 100.0, "b": 50.0},
        weight_decay={"a": 0.1, "b": 0.2},
        prior_mean={"b": torch.ones(3)},
    )
    expected = kl_divergence(q.mean["a"], q.hess["a"], 100.0, 0.1) + kl_divergence(
        q.mean["b"], q.hess["b"], 50.0, 0.2, prior_mean=torch.ones(3)
    )
    torch.testing.assert_close(kl(q, q.prior()), expected, rtol=1e-6, atol=0.0)


def test_kl_to_the_prior_is_what_the_optimizer_says() -> None:
    net = torch.nn.Linear(3, 2)
    opt = IVON(net.parameters(), lr=0.1, ess=100.0, weight_decay=0.01, prior_mean=0.5, seed=0)
    for _ in range(3):
        with opt.sampled_params(train=True):
            opt.zero_grad()
            net(torch.ones(1, 3)).square().sum().backward()
        opt.step()
    q = DiagGaussian.from_optimizer(net, opt)
    torch.testing.assert_close(kl(q, q.prior()), opt.kl(), rtol=1e-6, atol=0.0)


def test_weights_known_exactly() -> None:
    q = normal([1.0, 3.0], [1.0, 1.0])
    cut = prune(q, 0.5)
    assert kl(cut, cut).item() == 0.0
    assert kl(cut, q).item() == math.inf
    assert kl(q, cut).item() == math.inf
    other = DiagGaussian({"w": torch.tensor([1.0, 3.0])}, {"w": torch.tensor([math.inf, 1.0])}, 10.0, 0.5)
    assert kl(cut, other).item() == math.inf  # exactly 0 and exactly 1


def test_only_gaussians_over_the_same_tensors() -> None:
    q = normal([1.0], [1.0])
    with pytest.raises(TypeError, match="p is a Point"):
        kl(q, Point(q.mean))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="same names"):
        kl(q, DiagGaussian({"v": torch.zeros(1)}, {"v": torch.ones(1)}, ess=1.0))
