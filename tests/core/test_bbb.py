"""The rule of Bayes by backprop, compared with autograd and PyTorch's Adam."""

import math

import pytest
import torch
from torch.nn.functional import softplus

from varlearn.core import bbb
from varlearn.core.bbb import Hyper


def test_the_step_is_that_of_adam_on_the_gradient_of_the_elbo() -> None:
    """The same loss and KL written out, differentiated by autograd, with `torch.optim.AdamW` on mean and rho."""
    torch.manual_seed(1)
    n, prior_std, weight, decay = 50.0, 0.7, 0.5, 0.01
    m0, target = torch.randn(6).double(), torch.randn(6).double()
    mean = torch.nn.Parameter(torch.randn(6).double())
    rho = torch.nn.Parameter(torch.randn(6).double() - 2.0)
    adam = torch.optim.AdamW([mean, rho], lr=0.03, betas=(0.8, 0.95), weight_decay=decay)
    zeros = [torch.zeros(6).double() for _ in range(4)]
    values: tuple[torch.Tensor, ...] = (mean.detach().clone(), rho.detach().clone(), *zeros)
    for step in range(1, 11):
        eps = torch.randn(6).double()
        adam.zero_grad()
        sigma = softplus(rho)
        loss = ((mean + sigma * eps - target) ** 4).sum()
        kl = (torch.log(prior_std / sigma) + (sigma**2 + (mean - m0) ** 2) / (2 * prior_std**2) - 0.5).sum()
        (loss + weight * kl / n).backward()
        adam.step()
        theta = (values[0] + bbb.std(values[1]) * eps).requires_grad_()
        (grad,) = torch.autograd.grad(((theta - target) ** 4).sum(), theta)
        by_std = bbb.std_gradient("reparam", grad, values[1], lambda eps=eps: eps, 1.0, 0.0)
        hyper = Hyper(0.03, 0.8, 0.95, 1e-8, decay, weight / (n * prior_std**2), weight / n, step)
        values = bbb.step(values, grad, by_std, hyper, m0)
        torch.testing.assert_close(values[0], mean.detach(), rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(values[1], rho.detach(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("std", [1e-6, 0.01, 0.7, 20.0, 1e3])
def test_rho_is_the_inverse_of_softplus(std: float) -> None:
    assert bbb.std(torch.tensor(bbb.rho_of(std), dtype=torch.float64)).item() == pytest.approx(std, rel=1e-9)


def test_a_weight_without_noise_stays_without_noise() -> None:
    zero = torch.zeros(2)
    values: tuple[torch.Tensor, ...] = (torch.ones(2), torch.full((2,), bbb.rho_of(0.0)), zero, zero, zero, zero)
    for step in range(1, 4):
        values = bbb.step(values, torch.ones(2), torch.ones(2), Hyper(0.1, 0.9, 0.999, 1e-8, 0.01, 1.0, 1.0, step), 0.0)
    assert bool((bbb.std(values[1]) == 0).all())
    assert bool(values[0].isfinite().all())


@pytest.mark.parametrize("orthogonal", [True, False])
def test_the_posterior_of_a_linear_regression(orthogonal: bool) -> None:
    """With expected gradients the steps end at the best factorized Gaussian, whose ELBO is known in closed form."""
    n, noise, prior_std = 40, 0.5, 1.2
    inputs, targets = regression(n, noise, orthogonal)
    hessian = inputs.T @ inputs / noise**2  # of the summed loss
    precision = hessian + torch.eye(3).double() / prior_std**2
    best = torch.linalg.solve(precision, inputs.T @ targets / noise**2)
    zeros = [torch.zeros(3).double() for _ in range(4)]
    values: tuple[torch.Tensor, ...] = (torch.zeros(3).double(), torch.full((3,), -2.0).double(), *zeros)
    for step in range(1, 1_501):
        grad = (hessian @ values[0] - inputs.T @ targets / noise**2) / n
        by_std = hessian.diagonal() * bbb.std(values[1]) / n  # E[g eps]
        lr = 0.05 * (1.0 - step / 1_501)
        values = bbb.step(
            values, grad, by_std, Hyper(lr, 0.9, 0.99, 1e-12, 0.0, 1 / (n * prior_std**2), 1 / n, step), 0
        )
    mean, std = values[0], bbb.std(values[1])
    torch.testing.assert_close(mean, best, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(std, precision.diagonal().rsqrt(), rtol=1e-4, atol=0.0)
    squares = (targets - inputs @ mean).square().sum() + (inputs.square() @ std.square()).sum()
    log_likelihood = -squares / (2 * noise**2) - 0.5 * n * math.log(2 * math.pi * noise**2)
    kl = (torch.log(prior_std / std) + (std**2 + mean**2) / (2 * prior_std**2) - 0.5).sum()
    covariance = noise**2 * torch.eye(n).double() + prior_std**2 * inputs @ inputs.T
    evidence = torch.distributions.MultivariateNormal(torch.zeros(n).double(), covariance).log_prob(targets).item()
    lost = 0.5 * float(
        precision.diagonal().log().sum() - torch.logdet(precision)
    )  # by the factorization; 0 if orthogonal
    assert float(log_likelihood - kl) == pytest.approx(evidence - lost, abs=1e-4)
    assert (lost < 1e-9) == orthogonal


def regression(n: int, noise: float, orthogonal: bool) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(3)
    inputs = torch.randn(n, 3).double()
    if orthogonal:
        inputs = torch.linalg.qr(inputs).Q * torch.tensor([2.0, 5.0, 9.0]).double()
    return inputs, inputs @ torch.tensor([1.0, -2.0, 0.5]).double() + noise * torch.randn(n).double()


def test_wide_standard_deviations_are_their_own_rho() -> None:
    assert [bbb.rho_of(std) for std in (30.0, 1e4)] == [30.0, 1e4]
    assert bbb.rho_of(29.0) == pytest.approx(29.0, rel=1e-12)
    assert bbb.rho_of(3.0) < 2.96
