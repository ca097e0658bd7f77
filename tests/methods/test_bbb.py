"""Bayes by backprop as a method, and `bbb-paper`, the variant of the published comparison."""

import math

import pytest
import torch
from torch import nn

from tests.methods.quadratic import FACTS, Quadratic
from varlearn import DiagGaussian
from varlearn.methods.bbb import BBBMethod, BBBPaperMethod, BBBPaperSettings, BBBSettings
from varlearn.models.frn import FilterResponseNorm
from varlearn.optim import BBB


def test_settings_and_facts_reach_the_optimizer() -> None:
    settings = BBBSettings(lr=0.3, beta1=0.8, beta2=0.95, weight_decay=0.1, ess=7.0, samples=3, hess_init=0.2)
    (group,) = BBBMethod(settings).optimizer(nn.Linear(1, 1), FACTS).param_groups
    expected = {"lr": 0.3, "betas": (0.8, 0.95), "weight_decay": 0.1, "ess": 7.0, "mc_samples": 3, "hess_init": 0.2}
    expected |= {"seed": 5, "max_grad_norm": 2.0, "kl_weight": 1.0, "decay": 0.0, "prior_std": None}
    assert {name: group[name] for name in expected} == expected


def test_the_default_starts_at_ivon_s_posterior_with_the_paper_s_rate() -> None:
    (group,) = BBBMethod(BBBSettings()).optimizer(nn.Linear(1, 1), FACTS).param_groups
    assert (group["lr"], group["hess_init"], group["weight_decay"], group["ess"]) == (2e-3, 0.5, 2e-4, 10.0)


def test_the_posterior_is_the_optimizer_s() -> None:
    training = Quadratic(method := BBBMethod(BBBSettings()))  # type: ignore[arg-type]
    method.gradients(training, torch.ones(1))  # type: ignore[arg-type]
    training.optimizer.step()
    found = method.finish(training, [])  # type: ignore[arg-type]
    assert isinstance(training.optimizer, BBB)
    expected = DiagGaussian.from_optimizer(training.model, training.optimizer)
    assert torch.equal(found.std["weight"], expected.std["weight"])
    assert method.diagnostics(training) == {}  # type: ignore[arg-type]


def test_the_paper_s_variant_randomizes_layers_alone_and_averages_their_kl() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 40, 3), FilterResponseNorm(40), nn.Flatten(), nn.Linear(40, 50))
    norm = [param.detach().clone() for param in net[1].parameters()]
    opt = BBBPaperMethod(BBBPaperSettings()).optimizer(net, FACTS)
    q = DiagGaussian.from_optimizer(net, opt)
    for name in ("0.weight", "0.bias", "3.weight", "3.bias"):
        (group,) = [g for g in opt.param_groups if g["params"][0] is net.get_parameter(name)]
        assert group["kl_weight"] == 1.0 / net.get_parameter(name).numel()
        assert (group["decay"], group["prior_std"]) == (0.01, 10.0)
        assert q.std[name].log().mean().exp().item() == pytest.approx(1.5 / math.sqrt(10.0), rel=0.1)
    assert q.mean["3.weight"].std().item() == pytest.approx(0.1, rel=0.1)
    assert opt.state[net.get_parameter("3.weight")]["rho"].std().item() == pytest.approx(0.1, rel=0.1)
    for param, before, name in zip(net[1].parameters(), norm, ("1.gamma", "1.beta", "1.tau"), strict=True):
        assert torch.equal(param, before)
        assert bool((q.std[name] == 0).all())


def test_points_of_the_paper_s_variant_learn_and_stay_points() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), FilterResponseNorm(4), nn.Flatten(), nn.Linear(4 * 9, 5))
    opt = BBBPaperMethod(BBBPaperSettings(lr=0.1)).optimizer(net, FACTS)
    before = net.get_parameter("1.beta").detach().clone()
    for _ in range(3):
        with opt.sampled_params(train=True):
            opt.zero_grad()
            net(torch.ones(2, 3, 5, 5)).square().sum().backward()
        opt.step()
    q = DiagGaussian.from_optimizer(net, opt)
    assert bool((q.std["1.beta"] == 0).all())
    assert not torch.equal(q.mean["1.beta"], before)
