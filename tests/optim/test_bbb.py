"""Bayes by backprop in a loop: closed forms of linear regression, state, refusals."""

import pytest
import torch
from torch import Tensor, nn

from varlearn import DiagGaussian
from varlearn.optim import BBB
from varlearn.optim.engine.choice import choose

N, NOISE, DELTA = 40, 0.5, 0.02


def test_samples_of_a_loss_give_the_posterior_of_a_linear_regression() -> None:
    """Precision X^T X / s^2 + lambda delta; the best factorized Gaussian has its diagonal. Exactly so in core."""
    torch.manual_seed(3)
    inputs = torch.randn(N, 3)
    targets = inputs @ torch.tensor([1.0, -2.0, 0.5]) + NOISE * torch.randn(N)
    net = nn.Linear(3, 1, bias=False)
    opt = BBB(net.parameters(), lr=0.05, ess=N, weight_decay=DELTA, mc_samples=4, seed=0)

    def closure() -> Tensor:
        opt.zero_grad()
        loss = ((net(inputs)[:, 0] - targets) ** 2).mean() / (2 * NOISE**2)
        loss.backward()
        return loss

    for step in range(300):
        opt.param_groups[0]["lr"] = 0.05 * (1.0 - step / 300)
        opt.step(closure)
    precision = inputs.T @ inputs / NOISE**2 + N * DELTA * torch.eye(3)
    mean = torch.linalg.solve(precision, inputs.T @ targets / NOISE**2)
    q, std = DiagGaussian.from_optimizer(net, opt), precision.diagonal().rsqrt()
    torch.testing.assert_close(q.std["weight"][0], std, rtol=0.15, atol=0.0)
    assert bool(((q.mean["weight"][0] - mean).abs() < 0.5 * std).all())


def test_the_kl_is_summed_over_all_weights() -> None:
    """Traps: divided by the number of layers, or averaged per tensor."""
    net = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2))
    opt = BBB(net.parameters(), ess=100.0, weight_decay=0.1, std_init=0.2)
    prior = torch.distributions.Normal(torch.tensor(0.0).double(), torch.tensor(10.0**-0.5).double())
    expected = sum(
        torch.distributions.kl_divergence(torch.distributions.Normal(p.detach().double(), 0.2), prior).sum()
        for p in net.parameters()
    )
    assert opt.kl().item() == pytest.approx(float(expected), rel=1e-5)


def test_without_a_loss_the_posterior_becomes_the_prior() -> None:
    net = nn.Linear(2, 2, bias=False)
    opt = BBB(net.parameters(), lr=0.05, ess=10.0, prior_std=0.3)
    for step in range(400):
        opt.param_groups[0]["lr"] = 0.05 * (1 - step / 400)
        with opt.sampled_params(train=True):
            opt.zero_grad()
            (0.0 * net.weight).sum().backward()
        opt.step()
    q = DiagGaussian.from_optimizer(net, opt)
    torch.testing.assert_close(q.std["weight"], torch.full((2, 2), 0.3), rtol=1e-3, atol=0.0)
    torch.testing.assert_close(q.mean["weight"], torch.zeros(2, 2), rtol=0.0, atol=1e-3)


def test_sigma_starts_as_ivon_s_and_the_means_where_the_network_starts() -> None:
    net = nn.Linear(3, 2)
    before = net.weight.detach().clone()
    opt = BBB(net.parameters(), ess=500.0, hess_init=0.5, weight_decay=1e-3)
    q = DiagGaussian.from_optimizer(net, opt)
    torch.testing.assert_close(q.std["weight"], torch.full((2, 3), (500 * 0.501) ** -0.5))
    assert torch.equal(q.mean["weight"], before)
    assert q.origin.curvature is None


@pytest.mark.parametrize("foreach", [True, False])
def test_the_engines_agree(foreach: bool) -> None:
    results = []
    for option in (foreach, None):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 300), nn.ReLU(), nn.Linear(300, 3))
        opt = BBB(net.parameters(), lr=0.01, ess=100.0, seed=1, foreach=option)
        for _ in range(5):
            for _ in range(2):
                with opt.sampled_params(train=True):
                    opt.zero_grad()
                    net(torch.ones(2, 4)).square().sum().backward()
            opt.step()
        results.append([*net.parameters(), *(opt.state[p]["rho"] for p in net.parameters())])
        members = opt._members.find(opt.param_groups, opt.state)
        assert {choose(member, opt.rule) for member in members} == {"loop" if option is False else "foreach"}
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_a_saved_state_goes_on_bitwise() -> None:
    def take(net: nn.Linear, opt: BBB, steps: int) -> None:
        for _ in range(steps):
            with opt.sampled_params(train=True):
                opt.zero_grad()
                net(torch.ones(2, 3)).square().sum().backward()
            opt.step()

    torch.manual_seed(0)
    net, other = nn.Linear(3, 2), nn.Linear(3, 2)
    opt = BBB([{"params": [net.weight]}, {"params": [net.bias], "std_init": 0.0}], ess=10.0, seed=4)
    take(net, opt, 3)
    other.load_state_dict(net.state_dict())
    resumed = BBB([{"params": [other.weight]}, {"params": [other.bias]}], ess=20.0, seed=5)
    resumed.load_state_dict(opt.state_dict())
    take(net, opt, 3)
    take(other, resumed, 3)
    assert torch.equal(net.weight, other.weight)
    assert torch.equal(opt.state[net.weight]["rho"], resumed.state[other.weight]["rho"])
    q = DiagGaussian.from_optimizer(net, opt)
    assert bool((q.std["bias"] == 0).all())
    assert bool((q.std["weight"] > 0).all())


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"ess": 0.0}, "ess=0.0 must be > 0 and finite; use the number of training examples"),
        ({"prior_std": 0.0}, "prior_std=0.0 must be > 0 and finite; use None"),
        ({"std_init": -1.0}, "std_init=-1.0 must be >= 0 and finite; use None"),
        ({"kl_weight": -1.0}, "kl_weight=-1.0 must be >= 0 and finite; 1 is the evidence lower bound"),
        ({"decay": -1.0}, "decay=-1.0 must be >= 0 and finite; 0 leaves"),
    ],
)
def test_wrong_settings_are_refused_with_their_cure(wrong: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        BBB(nn.Linear(1, 1).parameters(), **{"ess": 10.0, **wrong})
