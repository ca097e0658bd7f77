"""Problems whose best Gaussian is known: quadratics, Bayesian linear regression, and the objective itself.

First the mean finds the mode with the Hessian held at h0; far from the mode hhat is mostly noise. Then the average runs
with beta2 = 1 - 1/(s + 10), so that after T steps h is the plain mean of T estimates, but for what is left of h0,
10/(T + 10), and for the paper's correction, which adds (1 - beta2)^2/2 Var(hhat)/(h + delta) in each step.
For a quadratic with matrix A, hhat_i = eps_i/sigma_i (r_i + sum_j A_ij sigma_j eps_j), where r = -delta m is the loss's
gradient at the mode. So its mean is A_ii and its variance (r_i/sigma_i)^2 + 2 A_ii^2 + sum_{j != i} (A_ij
sigma_j/sigma_i)^2: the Monte-Carlo error is known too.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal, Normal, kl_divergence

from varlearn import IVON, elbo

F64 = torch.float64
WARMUP, STEPS = 150, 700
SIGMAS = 5.0
# A step alpha on the preconditioned noise sigma eps leaves the mean sqrt(alpha/2) sigma from the mode, 0.06 in the end.
MEAN_ERROR = 0.06


def fit(weight: Tensor, loss: Callable[[Tensor], Tensor], ess: float, weight_decay: float) -> IVON:
    """The mean first, then the Hessian, with a learning rate that falls to 0.007."""
    opt = IVON([weight], lr=0.5, ess=ess, weight_decay=weight_decay, seed=1)
    group = opt.param_groups[0]
    for step in range(-WARMUP, STEPS):
        group["lr"] = 0.5 / (1.0 + 0.1 * max(step, 0))
        group["betas"] = (0.9, 1.0 - (1e-7 if step < 0 else 1.0 / (step + 10)))
        with opt.sampled_params(train=True):
            opt.zero_grad()
            loss(weight).backward()
        opt.step()
    return opt


class Optimum(NamedTuple):
    """The best Gaussian for a quadratic loss: all but the mode are of shape (d,)."""

    matrix: Tensor
    mode: Tensor
    std: Tensor
    weight_decay: float

    @property
    def curvature(self) -> Tensor:
        return self.matrix.diagonal()

    @property
    def error(self) -> Tensor:
        """Standard error of the mean of STEPS estimates of the curvature."""
        cross = (self.matrix * self.std / self.std[:, None]) ** 2
        pull = (self.weight_decay * self.mode / self.std) ** 2
        return ((cross.sum(1) + self.curvature**2 + pull) / STEPS).sqrt()

    @property
    def bias(self) -> Tensor:
        """What h0 = 1 and the correction leave in h."""
        start = (1.0 - self.curvature) * 10 / (STEPS + 10)
        summed = math.log(STEPS / 10 + 1) / (STEPS + 10)
        return start + self.error**2 * STEPS / (self.curvature + self.weight_decay) / 2 * summed


def spd_matrix(size: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    root = torch.randn(size, size, generator=generator, dtype=F64) / math.sqrt(size)
    return root @ root.T + torch.diag(torch.linspace(0.3, 3.0, size, dtype=F64))


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_quadratic_gives_mode_and_diagonal_curvature(weight_decay: float) -> None:
    size, ess = 12, 100.0
    matrix, centre = spd_matrix(size, seed=0), torch.linspace(-2.0, 2.0, size, dtype=F64)
    mode = torch.linalg.solve(matrix + weight_decay * torch.eye(size, dtype=F64), matrix @ centre)
    best = Optimum(matrix, mode, (ess * (matrix.diagonal() + weight_decay)).rsqrt(), weight_decay)
    weight = torch.zeros(size, dtype=F64, requires_grad=True)
    opt = fit(weight, lambda w: 0.5 * (w - centre) @ matrix @ (w - centre), ess, weight_decay)
    assert ((weight.detach() - mode) / best.std).abs().max().item() < SIGMAS * MEAN_ERROR
    off = opt.state[weight]["hess"] - best.curvature - best.bias
    assert (off.abs() <= SIGMAS * best.error + 0.5 * best.bias.abs()).all()


def test_pooled_curvature_is_unbiased() -> None:
    """4,000 copies of one scalar problem, so that the Monte-Carlo error is 0.08% and the known bias shows."""
    copies = 4000
    best = Optimum(torch.full((1, 1), 2.0, dtype=F64), torch.ones(1, dtype=F64), torch.ones(1, dtype=F64), 0.0)
    weight = torch.zeros(copies, dtype=F64, requires_grad=True)
    opt = fit(weight, lambda w: (w - 1.0).square().sum(), ess=1e3, weight_decay=0.0)
    hess = opt.state[weight]["hess"]
    error, bias = best.error.item(), best.bias.item()
    assert hess.mean().item() == pytest.approx(2.0 + bias, abs=SIGMAS * error / math.sqrt(copies) + 0.5 * abs(bias))
    # The spread over the copies is the error that the other tests allow for; the mean's jitter adds some.
    assert hess.std().item() == pytest.approx(error, rel=0.2)


def regression(examples: int = 200, features: int = 6) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(4)
    inputs = torch.randn(examples, features, generator=generator, dtype=F64) @ spd_matrix(features, seed=1)
    truth = torch.linspace(-1.0, 1.0, features, dtype=F64)
    return inputs, inputs @ truth + torch.randn(examples, generator=generator, dtype=F64)


def test_bayesian_linear_regression_gives_the_best_mean_field_gaussian() -> None:
    inputs, targets = regression()
    examples, features = inputs.shape
    decay = 0.05
    # Noise of variance 1 and the prior N(0, 1/(N delta)): the exact posterior.
    precision = inputs.T @ inputs + examples * decay * torch.eye(features, dtype=F64)
    mean = torch.linalg.solve(precision, inputs.T @ targets)
    best = Optimum(inputs.T @ inputs / examples, mean, precision.diagonal().rsqrt(), decay)
    weight = torch.zeros(features, dtype=F64, requires_grad=True)
    opt = fit(weight, lambda w: 0.5 * (inputs @ w - targets).square().mean(), examples, decay)
    assert ((weight.detach() - mean) / best.std).abs().max().item() < SIGMAS * MEAN_ERROR
    # d(log std) = d(log precision)/2: at most 6% at one standard error
    std = (examples * (opt.state[weight]["hess"] + decay)).rsqrt()
    relative, bias = (value / (best.curvature + decay) / 2 for value in (best.error, best.bias.abs()))
    assert relative.max().item() < 0.06
    assert ((std / best.std).log().abs() <= SIGMAS * relative + 1.5 * bias).all()


def with_posterior(weight: Tensor, hess: Tensor, **options: float) -> IVON:
    """An optimizer that holds a given Gaussian."""
    opt = IVON([weight], lr=0.1, **options)  # type: ignore[arg-type]
    with opt.sampled_params():
        pass
    opt.state[weight]["hess"].copy_(hess)
    return opt


def test_elbo_of_the_exact_posterior_is_the_log_evidence() -> None:
    """With orthogonal features the posterior is a mean-field Gaussian, and the bound is tight."""
    examples, features, decay = 40, 3, 0.1
    generator = torch.Generator().manual_seed(0)
    basis = torch.linalg.qr(torch.randn(examples, features, generator=generator, dtype=F64)).Q
    inputs = basis * torch.tensor([3.0, 1.0, 7.0], dtype=F64)
    targets = torch.randn(examples, generator=generator, dtype=F64)
    gram, prior = inputs.T @ inputs, examples * decay
    mean = torch.linalg.solve(gram + prior * torch.eye(features, dtype=F64), inputs.T @ targets)
    weight = mean.clone().requires_grad_()
    opt = with_posterior(weight, gram.diagonal() / examples, ess=examples, weight_decay=decay)
    variance = 1.0 / (gram.diagonal() + prior)
    residual = (inputs @ mean - targets).square().sum() + (gram.diagonal() * variance).sum()
    expected_loss = 0.5 * residual / examples + 0.5 * math.log(2.0 * math.pi)
    covariance = torch.eye(examples, dtype=F64) + inputs @ inputs.T / prior
    evidence = MultivariateNormal(torch.zeros(examples, dtype=F64), covariance).log_prob(targets)
    torch.testing.assert_close(elbo(expected_loss, opt.kl(), ess=examples), evidence, rtol=1e-10, atol=0.0)


@pytest.mark.parametrize("factor", [0.8, 1.25])
def test_elbo_is_lower_beside_the_optimum(factor: float) -> None:
    inputs, targets = regression()
    examples, features = inputs.shape
    decay = 0.05
    matrix = inputs.T @ inputs / examples
    mean = torch.linalg.solve(matrix + decay * torch.eye(features, dtype=F64), inputs.T @ targets / examples)

    def bound(precision_factor: float) -> Tensor:
        precision = (matrix.diagonal() + decay) * precision_factor
        opt = with_posterior(mean.clone().requires_grad_(), precision - decay, ess=examples, weight_decay=decay)
        loss = 0.5 * (inputs @ mean - targets).square().mean() + 0.5 * (matrix.diagonal() / precision).sum() / examples
        return elbo(loss, opt.kl(), ess=examples)

    assert bound(1.0) > bound(factor)


def test_kl_over_groups_matches_torch_distributions() -> None:
    """Two groups with their own ess, decay and prior mean; h below zero in one; one before its first sample."""
    a, b = (torch.linspace(-1.0, 1.0, 5, requires_grad=True) for _ in range(2))
    frozen = torch.ones(3)
    groups = [
        {"params": [a, frozen], "ess": 50.0, "weight_decay": 0.2, "prior_mean": 0.5},
        {"params": [b], "ess": 1e5, "weight_decay": 1e-3},
    ]
    opt = IVON(groups, lr=0.1, ess=1.0, hess_init=0.7)

    def expected(hess_a: Tensor) -> Tensor:
        prior = (50.0 * 0.2) ** -0.5, (1e5 * 1e-3) ** -0.5
        q_a = Normal(a.detach().double(), (50.0 * (hess_a + 0.2)).rsqrt())
        q_b = Normal(b.detach().double(), torch.full((5,), (1e5 * (0.7 + 1e-3)) ** -0.5, dtype=F64))
        kl_a = kl_divergence(q_a, Normal(torch.full((5,), 0.5, dtype=F64), torch.full((5,), prior[0], dtype=F64)))
        kl_b = kl_divergence(q_b, Normal(torch.zeros(5, dtype=F64), torch.full((5,), prior[1], dtype=F64)))
        return kl_a.sum() + kl_b.sum()

    torch.testing.assert_close(opt.kl(), expected(torch.full((5,), 0.7, dtype=F64)), rtol=1e-6, atol=0.0)
    with opt.sampled_params():
        pass
    hess = torch.tensor([-0.1, -0.15, 0.0, 0.3, 8.0])
    opt.state[a]["hess"].copy_(hess)
    torch.testing.assert_close(opt.kl(), expected(hess.double()), rtol=1e-6, atol=0.0)


def test_kl_of_a_flat_prior_is_refused() -> None:
    opt = IVON([torch.zeros(2, requires_grad=True)], lr=0.1, ess=10.0, weight_decay=0.0)
    with pytest.raises(ValueError, match=r"weight_decay=0\.0 must be > 0"):
        opt.kl()
