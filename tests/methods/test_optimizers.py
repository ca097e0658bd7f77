"""Settings and facts reach the optimizers."""

from dataclasses import replace
from typing import Any

import torch

from varlearn import IVON
from varlearn.methods import Facts, Optim, named

FACTS = Facts(n=10, batch_size=2, steps=3, task="classification", seed=5, max_grad_norm=2.0)


def group_of(optim: Optim) -> dict[str, Any]:
    return named(optim.name)(optim).optimizer(torch.nn.Linear(1, 1), FACTS).param_groups[0]


def test_decay_of_matrices_only() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.LayerNorm(3))
    for name in ("ivon", "adamw", "sgd"):
        method = named(name)(Optim(name, weight_decay=0.1, matrices_only=True))
        groups = method.optimizer(net, FACTS).param_groups
        decays = {param.dim(): group["weight_decay"] for group in groups for param in group["params"]}
        assert decays == {2: 0.1, 1: 0.0}


def test_settings_and_facts_reach_the_optimizer() -> None:
    optim = Optim("ivon", lr=0.3, beta1=0.8, beta2=0.95, ess=7.0, hess_init=0.2, clip_radius=0.5, rescale_lr=False)
    assert isinstance(named("ivon")(optim).optimizer(torch.nn.Linear(1, 1), FACTS), IVON)
    expected = {"lr": 0.3, "ess": 7.0, "hess_init": 0.2, "clip_radius": 0.5, "rescale_lr": False, "seed": 5}
    group = group_of(optim)
    assert expected | {"max_grad_norm": 2.0} == {name: group[name] for name in [*expected, "max_grad_norm"]}
    assert tuple(group["betas"]) == (0.8, 0.95)
    adamw = group_of(replace(optim, name="adamw"))
    assert (adamw["lr"], tuple(adamw["betas"])) == (0.3, (0.8, 0.95))
    assert group_of(replace(optim, name="sgd"))["momentum"] == 0.8


def test_ess_is_the_number_of_examples_unless_given() -> None:
    assert group_of(Optim("ivon"))["ess"] == 10.0
