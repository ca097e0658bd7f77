"""Posteriors read out of optimizers: the real IVON, and fakes that hold its contract in other states."""

import math

import pytest
import torch
from torch import nn

from varlearn import IVON
from varlearn.optim.vadamw import VAdamW
from varlearn.posterior import DiagGaussian, Origin


def train(net: nn.Module, opt: IVON, steps: int = 3) -> None:
    for _ in range(steps):
        with opt.sampled_params(train=True):
            opt.zero_grad()
            net(torch.ones(4, 3, dtype=next(net.parameters()).dtype)).square().mean().backward()
        opt.step()


def test_ivon_with_groups() -> None:
    net = nn.Linear(3, 2)
    groups = [{"params": [net.weight], "ess": 50.0, "weight_decay": 0.1}, {"params": [net.bias]}]
    opt = IVON(groups, lr=0.1, ess=1000.0, hess_init=0.5, weight_decay=0.0, betas=(0.9, 0.9), seed=0)
    train(net, opt)
    q = DiagGaussian.from_optimizer(net, opt)
    assert (q.ess, q.weight_decay) == ({"weight": 50.0, "bias": 1000.0}, {"weight": 0.1, "bias": 0.0})
    assert torch.equal(q.mean["weight"], net.weight)
    assert torch.equal(q.hess["weight"], opt.state[net.weight]["hess"])
    assert not torch.equal(q.hess["weight"], torch.full((2, 3), 0.5))
    torch.testing.assert_close(q.std["bias"], (1000.0 * opt.state[net.bias]["hess"]).rsqrt())
    assert q.fixed == {}


def test_it_is_a_copy() -> None:
    net = nn.Linear(3, 2)
    opt = IVON(net.parameters(), lr=0.1, ess=100.0, seed=0)
    train(net, opt)
    q = DiagGaussian.from_optimizer(net, opt)
    mean, hess = q.mean["weight"].clone(), q.hess["weight"].clone()
    train(net, opt)
    assert torch.equal(q.mean["weight"], mean)
    assert torch.equal(q.hess["weight"], hess)
    assert not q.mean["weight"].requires_grad


def test_a_parameter_that_never_had_a_gradient_is_as_wide_as_at_first() -> None:
    net = nn.Linear(3, 2)
    q = DiagGaussian.from_optimizer(net, IVON(net.parameters(), lr=0.1, ess=100.0, hess_init=0.25, weight_decay=0.0))
    torch.testing.assert_close(q.std["weight"], torch.full((2, 3), 0.2))


def test_frozen_foreign_and_buffers_are_fixed() -> None:
    net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
    net[0].weight.requires_grad_(False)
    opt = IVON([*net[0].parameters(), *net[1].parameters()], lr=0.1, ess=100.0, seed=0)  # net[2] is someone else's
    train(net, opt)
    q = DiagGaussian.from_optimizer(net, opt)
    assert list(q.mean) == ["0.bias", "1.weight", "1.bias"]
    assert q.fixed is not None
    assert sorted(q.fixed) == [
        "0.weight",
        "1.num_batches_tracked",
        "1.running_mean",
        "1.running_var",
        "2.bias",
        "2.weight",
    ]
    assert q.fixed["1.num_batches_tracked"].item() == 3
    net.load_state_dict(q.state_dict(), strict=True)


def test_tied_weights_are_stored_once() -> None:
    net = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    net[1].weight = net[0].weight
    opt = IVON(net.parameters(), lr=0.1, ess=100.0, seed=0)
    train(net, opt)
    q = DiagGaussian.from_optimizer(net, opt)
    assert list(q.mean) == ["0.weight"]
    assert q.tied == {"1.weight": "0.weight"}


def test_a_sample_in_the_weights_is_refused() -> None:
    net = nn.Linear(3, 2)
    opt = IVON(net.parameters(), lr=0.1, ess=100.0, seed=0)
    with opt.sampled_params(), pytest.raises(ValueError, match="leave the sampled_params block"):
        DiagGaussian.from_optimizer(net, opt)
    DiagGaussian.from_optimizer(net, opt)


def test_bf16_parameters_bring_their_float32_mean() -> None:
    net = nn.Linear(3, 2).bfloat16()
    opt = IVON(net.parameters(), lr=0.1, ess=100.0, seed=0)
    train(net, opt)
    q = DiagGaussian.from_optimizer(net, opt)
    assert q.mean["weight"].dtype == q.hess["weight"].dtype == torch.float32
    assert torch.equal(q.mean["weight"], opt.state[net.weight]["mean"])
    assert torch.equal(q.mean["weight"].bfloat16(), net.weight)
    with torch.no_grad():
        net.weight[0, 0] = 8.0  # changed from outside: the stale finer mean must not win
    q = DiagGaussian.from_optimizer(net, opt)
    assert q.mean["weight"][0, 0].item() == 8.0
    assert torch.equal(q.mean["weight"][1], opt.state[net.weight]["mean"][1])


def test_float64_parameters_keep_float64() -> None:
    net = nn.Linear(3, 2).double()
    opt = IVON(net.parameters(), lr=0.1, ess=100.0, seed=0)
    train(net, opt)
    q = DiagGaussian.from_optimizer(net, opt)
    assert {q.mean["weight"].dtype, q.hess["weight"].dtype, q.sample()["weight"].dtype} == {torch.float64}


def test_prior_means() -> None:
    net = nn.Linear(3, 2)
    start = net.weight.detach().clone()
    for prior, expected in ((None, None), (0.5, torch.full((2, 3), 0.5)), ("init", start)):
        q = DiagGaussian.from_optimizer(net, IVON(net.parameters(), lr=0.1, ess=100.0, prior_mean=prior, seed=0))
        assert (q.prior_mean == {}) if expected is None else torch.equal(q.prior_mean["weight"], expected)
    opt = IVON(net.parameters(), lr=0.1, ess=100.0, prior_mean="init", seed=0)
    train(net, opt)
    assert torch.equal(DiagGaussian.from_optimizer(net, opt).prior_mean["weight"], start)
    given = [torch.full((2, 3), 7.0), torch.full((2,), 8.0)]
    opt = IVON(net.parameters(), lr=0.1, ess=100.0, prior_mean=given, seed=0)
    assert DiagGaussian.from_optimizer(net, opt).prior_mean["bias"].tolist() == [8.0, 8.0]


def test_a_compiled_model_gives_the_names_of_the_model() -> None:
    net = nn.Linear(3, 2)
    q = DiagGaussian.from_optimizer(torch.compile(net, backend="eager"), IVON(net.parameters(), lr=0.1, ess=100.0))
    assert list(q.mean) == ["weight", "bias"]


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
def test_adam_variance_is_that_of_the_paper(kind: type[torch.optim.Optimizer]) -> None:
    net = nn.Linear(1, 1, bias=False)
    adam = kind(net.parameters(), lr=0.0, betas=(0.9, 0.99), weight_decay=0.125)
    squares = 0.0
    for gradient in (1.0, -2.0, 3.0):
        net.weight.grad = torch.tensor([[gradient]])
        adam.step()
        if kind is torch.optim.Adam:  # Adam adds the decay to the gradient
            gradient += 0.125 * net.weight.item()
        squares = 0.99 * squares + 0.01 * gradient**2
    q = DiagGaussian.from_optimizer(net, adam, ess=200.0)
    root = math.sqrt(squares / (1 - 0.99**3))
    assert q.std["weight"].item() == pytest.approx(1.0 / math.sqrt(200.0 * (root + 0.125)), rel=1e-5)
    wider = DiagGaussian.from_optimizer(net, adam, ess=200.0, weight_decay=0.0)
    assert wider.std["weight"].item() == pytest.approx(1.0 / math.sqrt(200.0 * root), rel=1e-5)


def test_sgd_variance_is_that_of_the_paper() -> None:
    net = nn.Linear(2, 1)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=0.25)
    q = DiagGaussian.from_optimizer(net, sgd, ess=20.0)
    torch.testing.assert_close(q.std["weight"], torch.full((1, 2), 1.0 / math.sqrt(20.0 * 1.25)))


def test_adamw_without_steps_or_decay_has_no_variance() -> None:
    net = nn.Linear(2, 1)
    adamw = torch.optim.AdamW(net.parameters(), weight_decay=0.0)
    with pytest.raises(ValueError, match="use a larger weight_decay"):
        DiagGaussian.from_optimizer(net, adamw, ess=10.0)


@pytest.mark.parametrize(
    ("make", "arguments", "error", "message"),
    [
        (lambda p: IVON(p, lr=0.1, ess=1.0), {"ess": 5.0}, ValueError, r"use posterior.tempered\(T\)"),
        (lambda p: torch.optim.SGD(p, lr=0.1), {}, ValueError, "ess=None, but SGD does not know it; pass ess=number"),
        (lambda p: torch.optim.Rprop(p), {"ess": 5.0}, TypeError, "no variance is known for Rprop"),
    ],
)
def test_refusals(make, arguments: dict, error: type[Exception], message: str) -> None:
    net = nn.Linear(2, 1)
    with pytest.raises(error, match=message):
        DiagGaussian.from_optimizer(net, make(net.parameters()), **arguments)


@pytest.mark.parametrize(
    ("make", "ess", "origin"),
    [
        (lambda p: IVON(p, lr=0.1, ess=1.0), None, Origin("ivon", "ivon")),
        (lambda p: VAdamW(p, n=100, batch_size=10), None, Origin("vadamw", "squared_gradient", n=100, batch_size=10)),
        (lambda p: torch.optim.AdamW(p), 10.0, Origin("adamw", "sqrt_v")),
        (lambda p: torch.optim.SGD(p, lr=0.1), 10.0, Origin("sgd", "constant")),
    ],
)
def test_the_origin_is_known(make, ess: float | None, origin: Origin) -> None:
    net = nn.Linear(1, 1)
    optimizer = make(net.parameters())
    if isinstance(optimizer, VAdamW):
        with optimizer.sampled_params(train=True):
            net(torch.ones(1, 1)).sum().backward()
        optimizer.step()
    assert DiagGaussian.from_optimizer(net, optimizer, ess=ess).origin == origin


def test_sizes_that_the_optimizer_does_not_know_are_given_for_merging() -> None:
    net = nn.Linear(1, 1)
    origin = DiagGaussian.from_optimizer(net, IVON(net.parameters(), lr=0.1, ess=1.0), n=50).origin
    assert origin == Origin("ivon", "ivon", n=50)
    adamw = torch.optim.AdamW(net.parameters())
    origin = DiagGaussian.from_optimizer(net, adamw, ess=50.0, n=50, batch_size=5).origin
    assert origin == Origin("adamw", "sqrt_v", n=50, batch_size=5)
    with pytest.raises(ValueError, match="n=0 must be > 0 and finite"):
        DiagGaussian.from_optimizer(net, adamw, ess=50.0, n=0)


def test_a_foreign_model_is_refused() -> None:
    opt = IVON(nn.Linear(3, 2).parameters(), lr=0.1, ess=1.0)
    with pytest.raises(ValueError, match=r"parameter of shape \(2, 3\) that is not in the model"):
        DiagGaussian.from_optimizer(nn.Linear(3, 2), opt)
