"""SGD as a method: its settings, and the point that results."""

import torch
from torch import nn

from tests.methods.quadratic import FACTS, assert_learns_a_point
from varlearn.methods import Optim
from varlearn.methods.sgd import SGDMethod


def test_settings_reach_the_optimizer() -> None:
    method = SGDMethod(Optim("sgd", lr=0.3, beta1=0.8, beta2=0.95, weight_decay=0.1))
    optimizer = method.optimizer(nn.Linear(1, 1), FACTS)
    assert type(optimizer) is torch.optim.SGD
    group = optimizer.param_groups[0]
    assert (group["lr"], group["weight_decay"], group["momentum"]) == (0.3, 0.1, 0.8)


def test_one_pass_per_batch_and_the_weights_as_a_point() -> None:
    assert_learns_a_point(SGDMethod(Optim("sgd")))
