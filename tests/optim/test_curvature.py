"""Handed-in Hessian estimates against curvlinops' dense operators on tiny networks."""

import itertools
import math

import pytest
import torch
from curvlinops import EFLinearOperator, HessianLinearOperator
from torch import Tensor, nn

from varlearn import IVON
from varlearn.optim.curvature import hutchinson, per_example_gauss_newton


def tiny_problem() -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    return model, torch.randn(6, 3, dtype=torch.float64), torch.tensor([0, 1, 0, 1, 1, 0])


def dense_diagonal(operator: object, size: int) -> Tensor:
    return (operator @ torch.eye(size, dtype=torch.float64)).diagonal()


def flat(estimates: dict[Tensor, Tensor], model: nn.Module) -> Tensor:
    return torch.cat([estimates[param].reshape(-1) for param in model.parameters()])


@pytest.mark.parametrize("chunk_size", [None, 4, 1])
def test_gauss_newton_is_the_diagonal_of_the_empirical_fisher(chunk_size: int | None) -> None:
    model, inputs, targets = tiny_problem()
    loss = nn.CrossEntropyLoss()
    params = list(model.parameters())
    fisher = EFLinearOperator(model, loss, params, [(inputs, targets)], check_deterministic=False)
    size = sum(param.numel() for param in params)
    ours = per_example_gauss_newton(model, loss, inputs, targets, chunk_size)
    torch.testing.assert_close(flat(ours, model), dense_diagonal(fisher, size), rtol=1e-10, atol=1e-12)


def test_gauss_newton_leaves_frozen_parameters_out() -> None:
    model, inputs, targets = tiny_problem()
    frozen = next(model.parameters())
    frozen.requires_grad_(False)
    assert frozen not in per_example_gauss_newton(model, nn.CrossEntropyLoss(), inputs, targets)


def test_hutchinson_is_unbiased_for_the_diagonal_of_the_hessian() -> None:
    model, inputs, targets = tiny_problem()
    loss = nn.CrossEntropyLoss()
    params = list(model.parameters())
    size = sum(param.numel() for param in params)
    hessian = HessianLinearOperator(model, loss, params, [(inputs, targets)], check_deterministic=False)
    matrix = hessian @ torch.eye(size, dtype=torch.float64)
    probes = 4_000
    ours = flat(hutchinson(loss(model(inputs), targets), model.parameters(), seed=1, probes=probes), model)
    # The variance of z_i (H z)_i is the sum of the squared off-diagonal entries of row i.
    error = (matrix.square().sum(1) - matrix.diagonal().square()).sqrt() / math.sqrt(probes)
    assert bool(((ours - matrix.diagonal()).abs() <= 5.0 * error + 1e-12).all())


def test_hutchinson_of_two_variables_is_one_of_two_values() -> None:
    weight = nn.Parameter(torch.tensor([1.0, 1.0], dtype=torch.float64))
    matrix = torch.tensor([[2.0, 1.0], [1.0, 3.0]], dtype=torch.float64)
    seen = {
        tuple(hutchinson(0.5 * weight @ matrix @ weight, [weight], seed=seed)[weight].tolist()) for seed in range(20)
    }
    expected = {
        tuple((torch.tensor(z, dtype=torch.float64) * (matrix @ torch.tensor(z, dtype=torch.float64))).tolist())
        for z in itertools.product((-1.0, 1.0), repeat=2)
    }
    assert seen == expected


def test_hutchinson_leaves_unreached_parameters_out_and_the_global_generator_alone() -> None:
    used, unused = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    before = torch.get_rng_state()
    estimates = hutchinson((used**3).sum(), [used, unused])
    assert list(estimates) == [used]
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("samples", [1, 2])
def test_a_handed_in_estimate_replaces_the_optimizers_own(samples: int) -> None:
    weight = nn.Parameter(torch.ones(3))
    opt = IVON([weight], lr=0.1, ess=100.0, hess_init=1.0, betas=(0.9, 0.5), weight_decay=0.0)
    for sample in range(samples):
        with opt.sampled_params(train=True):
            opt.zero_grad()
            (weight**2).sum().backward()
            opt.hand_in_hess({weight: torch.full((3,), 2.0 + sample)})
    opt.step()
    hhat = 2.0 if samples == 1 else 2.5
    # Line 5 with h = 1, beta2 = 1/2, delta = 0.
    expected = 0.5 + 0.5 * hhat + 0.5 * 0.25 * (1.0 - hhat) ** 2
    torch.testing.assert_close(opt.state[weight]["hess"], torch.full((3,), expected))


def test_a_loss_that_cannot_be_differentiated_twice_is_refused_with_the_cure() -> None:
    weight = nn.Parameter(torch.randn(1, 1, 4, 8))
    loss = nn.functional.scaled_dot_product_attention(weight, weight, weight).square().sum()
    with pytest.raises(RuntimeError, match=r"cannot be differentiated twice: .*sdpa_kernel\(SDPBackend.MATH\)"):
        hutchinson(loss, [weight])
