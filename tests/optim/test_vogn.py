"""VOGN: the posterior of Bayesian linear regression, its one pass over the examples, and what it refuses."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from varlearn import DiagGaussian
from varlearn.optim import IVON2021, VOGN
from varlearn.optim.per_example import example_gradients

N, NOISE = 40, 0.5  # examples, and the variance of their targets


def regression() -> tuple[Tensor, Tensor]:
    """Examples whose inputs are orthonormal up to scale, so that the posterior has no correlations."""
    generator = torch.Generator().manual_seed(0)
    basis = torch.linalg.qr(torch.randn(N, 3, generator=generator, dtype=torch.float64))[0]
    inputs = basis * (N**0.5) * torch.tensor([1.0, 0.5, 2.0], dtype=torch.float64)
    targets = inputs @ torch.tensor([[1.0], [-2.0], [0.5]], dtype=torch.float64)
    return inputs, targets + NOISE**0.5 * torch.randn(N, 1, generator=generator, dtype=torch.float64)


def halves(outputs: Tensor, targets: Tensor) -> Tensor:
    """The negative log-likelihood up to a constant, a mean over the examples."""
    return (outputs - targets).square().sum(1).mean() / (2.0 * NOISE)


@pytest.mark.parametrize("momentum", ["sum", "average"])
def test_the_posterior_of_bayesian_linear_regression(momentum: Any) -> None:
    """With labels from the model, E[hhat] is the Gauss-Newton diagonal: mean and variance are the exact posterior's."""
    inputs, targets = regression()
    delta, steps = 0.1, 1_500
    net = nn.Linear(3, 1, bias=False, dtype=torch.float64)
    peak, settings = 0.1 if momentum == "average" else 0.01, {"weight_decay": delta, "damping": 0.0, "seed": 0}
    opt = VOGN(net.parameters(), peak, float(N), betas=(0.9, 0.995), momentum=momentum, **settings)  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(1)
    for step in range(steps):
        opt.param_groups[0]["lr"] = peak * (1.0 - step / steps)
        with opt.sampled_params(train=True):
            opt.zero_grad()
            halves(net(inputs), targets).backward()
            # The gradient of an example with a label from the model is its input times noise of variance 1 / NOISE.
            noise = torch.randn(N, 1, generator=generator, dtype=torch.float64) / NOISE**0.5
            opt.hand_in_hess({net.weight: (inputs * noise).square().mean(0, keepdim=True)})
        opt.step()
    precision = inputs.T @ inputs / NOISE + N * delta * torch.eye(3, dtype=torch.float64)
    exact = torch.linalg.solve(precision, inputs.T @ targets / NOISE)
    torch.testing.assert_close(net.weight.detach().T, exact, rtol=0.03, atol=0.03)
    std = DiagGaussian.from_optimizer(net, opt).std["weight"]
    torch.testing.assert_close(std.squeeze(), precision.diagonal().rsqrt(), rtol=0.05, atol=0.0)


def test_damping_narrows_the_posterior_and_not_the_prior() -> None:
    weights = [nn.Parameter(torch.ones(3)) for _ in range(2)]
    opts = [
        VOGN([w], 0.1, 50.0, hess_init=0.4, weight_decay=0.1, damping=g)
        for w, g in zip(weights, (0.0, 0.5), strict=True)
    ]
    terms = [opt.posterior_terms(w) for opt, w in zip(opts, weights, strict=True)]
    assert [float(h[0]) for h, _, _ in terms] == pytest.approx([0.4, 0.9])
    assert [delta for _, _, delta in terms] == [0.1, 0.1]
    spreads = []
    for opt, weight in zip(opts, weights, strict=True):
        draws = []
        for _ in range(1_000):
            with opt.sampled_params():
                draws.append(weight.detach().clone())
        spreads.append(torch.stack(draws).std().item())
    assert spreads == pytest.approx([(50.0 * 0.5) ** -0.5, (50.0 * 1.0) ** -0.5], rel=0.05)
    assert opts[1].kl() > opts[0].kl()


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.GroupNorm(1, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 3))


def test_backward_adds_the_gradient_and_hands_in_the_squares() -> None:
    net, loss_fn = network(), nn.CrossEntropyLoss()
    x, y = torch.randn(5, 2, 4, 4), torch.tensor([0, 2, 1, 1, 0])
    opt = VOGN(net.parameters(), 0.1, 100.0, seed=0)
    with opt.sampled_params(train=True):
        opt.zero_grad()
        loss = opt.backward(net, loss_fn, x, y)
        expected = loss_fn(net(x), y)
        grads = torch.autograd.grad(expected, list(net.parameters()))
        single = [
            torch.autograd.grad(loss_fn(net(x[k : k + 1]), y[k : k + 1]), list(net.parameters())) for k in range(5)
        ]
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    for k, (param, grad) in enumerate(zip(net.parameters(), grads, strict=True)):
        torch.testing.assert_close(param.grad, grad, rtol=1e-4, atol=1e-6)
        squares = torch.stack([each[k] for each in single]).square().mean(0)
        torch.testing.assert_close(opt._average.estimates[param], squares, rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_chunks_of_examples_give_the_same(size: int) -> None:
    net = network()
    x, y = torch.randn(5, 2, 4, 4), torch.tensor([0, 2, 1, 1, 0])
    whole, parts = (
        example_gradients(net, lambda f, a, b: nn.functional.cross_entropy(f(a), b), x, y, chunk)
        for chunk in (None, size)
    )
    torch.testing.assert_close(parts.loss, whole.loss)
    for param in net.parameters():
        torch.testing.assert_close(parts.mean[param], whole.mean[param], rtol=1e-5, atol=1e-7)
        torch.testing.assert_close(parts.squares[param], whole.squares[param], rtol=1e-5, atol=1e-9)


class Recurrent(nn.Module):
    """A layer that PyTorch cannot vectorize, and a tied weight."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.layer = nn.Embedding(6, 4), nn.GRU(4, 4, batch_first=True)
        self.head = nn.Linear(4, 6, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.layer(self.words(ids))[0][:, -1])


def test_layers_that_cannot_be_vectorized_and_tied_weights() -> None:
    torch.manual_seed(0)
    net, loss_fn = Recurrent(), nn.CrossEntropyLoss()
    x, y = torch.randint(6, (3, 5)), torch.tensor([1, 0, 5])
    found = example_gradients(net, lambda f, a, b: loss_fn(f(a), b), x, y)
    params = list(net.parameters())
    single = [torch.autograd.grad(loss_fn(net(x[k : k + 1]), y[k : k + 1]), params) for k in range(3)]
    for k, param in enumerate(params):
        torch.testing.assert_close(found.squares[param], torch.stack([g[k] for g in single]).square().mean(0))
        torch.testing.assert_close(found.mean[param], torch.stack([g[k] for g in single]).mean(0))


def test_an_error_of_the_users_network_is_not_hidden() -> None:
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        example_gradients(nn.Linear(3, 2), lambda f, a, b: f(a).sum(), torch.ones(2, 4), torch.ones(2))


def test_a_refused_backward_leaves_gradients_alone() -> None:
    net, other, loss_fn = network(), network(), nn.CrossEntropyLoss()
    x, y = torch.randn(5, 2, 4, 4), torch.tensor([0, 2, 1, 1, 0])
    opt = VOGN(net.parameters(), 0.1, 100.0)
    with pytest.raises(RuntimeError, match=r"backward\(\) outside a training block; call it inside sampled_params"):
        opt.backward(net, loss_fn, x, y)
    with pytest.raises(ValueError, match="not a trainable parameter of this optimizer"), opt.sampled_params(train=True):
        opt.backward(other, loss_fn, x, y)
    words = r"the loss has shape \(1,\) and must be one number.* reduction='mean'"
    with pytest.raises(ValueError, match=words), opt.sampled_params(train=True):
        opt.backward(net, nn.CrossEntropyLoss(reduction="none"), x, y)
    assert all(param.grad is None for param in (*net.parameters(), *other.parameters()))
    with opt.sampled_params(train=True):
        opt.backward(net, loss_fn, x, y)
        with pytest.raises(RuntimeError, match=r"backward\(\) twice in a training block"):
            opt.backward(net, loss_fn, x, y)


def test_a_block_without_squares_is_refused_and_forgotten() -> None:
    weight = nn.Parameter(torch.ones(2))
    opt = VOGN([weight], 0.1, 100.0)
    with (
        pytest.raises(RuntimeError, match="without the squared gradients of 1 parameter"),
        opt.sampled_params(train=True),
    ):
        weight.square().sum().backward()
    assert weight.grad is None
    assert torch.equal(weight.detach(), torch.ones(2))
    with opt.sampled_params(train=True):
        weight.square().sum().backward()
        opt.hand_in_hess({weight: torch.ones(2)})
    opt.step()
    assert opt.state[weight]["step"] == 1


def test_a_mode_is_refused() -> None:
    opt = VOGN([nn.Parameter(torch.ones(2))], 0.1, 100.0)
    with pytest.raises(RuntimeError, match="train.. is not for VOGN"):
        opt.train()


def test_a_tensor_prior_mean_is_where_the_decay_pulls() -> None:
    for optimizer in (VOGN, IVON2021):
        weight = nn.Parameter(torch.zeros(2))
        opt: Any = optimizer([weight], 0.5, 1e8, prior_mean=[torch.tensor([1.0, -1.0])], weight_decay=1.0, damping=0.0)
        for _ in range(200):
            with opt.sampled_params(train=True):
                opt.zero_grad()
                (0.0 * weight).sum().backward()
                opt.hand_in_hess({weight: torch.zeros(2)})
            opt.step()
        torch.testing.assert_close(weight.detach(), torch.tensor([1.0, -1.0]), rtol=0.0, atol=0.05)
        assert copy.deepcopy(opt).kl() == opt.kl()
