"""Which parameters decay."""

import pytest
import torch

from varlearn.methods import METHODS, Facts, Optim, settings_for
from varlearn.methods.parameter_groups import parameter_groups

FACTS = Facts(n=10, batch_size=2, steps=3, task="classification")


@pytest.mark.parametrize("name", METHODS)
def test_decay_of_matrices_only(name: str) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.LayerNorm(3))
    method = METHODS[name](settings_for(Optim(name, weight_decay=0.1, matrices_only=True)))
    groups = method.optimizer(net, FACTS).param_groups
    decays = {param.dim(): group["weight_decay"] for group in groups for param in group["params"]}
    assert decays == {2: 0.1, 1: 0.0}


def test_frozen_parameters_and_empty_groups_are_left_out() -> None:
    net = torch.nn.Linear(2, 3)
    net.bias.requires_grad_(False)
    (group,) = parameter_groups(net, Optim("sgd", weight_decay=0.1, matrices_only=True))
    assert group["weight_decay"] == 0.1
    assert [param is net.weight for param in group["params"]] == [True]
