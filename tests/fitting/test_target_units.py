"""Units of the targets, and the loss whose noise follows the errors."""

import math

import pytest
import torch
from torch import nn

from varlearn.fitting.target_units import GaussianLoss, TargetUnits, measure_units


def test_the_hook_is_gone_afterwards_also_after_an_error() -> None:
    net, units = nn.Linear(1, 1), TargetUnits(torch.tensor(5.0), torch.tensor(3.0))
    x = torch.ones(2, 1)
    plain = net(x)
    with units.on(net):
        torch.testing.assert_close(net(x), 5.0 + 3.0 * plain)
    with pytest.raises(KeyError), units.on(net):
        raise KeyError
    assert torch.equal(net(x), plain)


def test_a_pair_and_named_outputs_are_converted() -> None:
    class Pair(nn.Module):
        def forward(self, x: torch.Tensor):
            return x, x

    units = TargetUnits(torch.tensor(1.0), torch.tensor(2.0), noise_factor=10.0)
    pair = Pair()
    with units.on(pair):
        mean, variance = pair(torch.ones(1, 1))
    assert (mean.item(), variance.item()) == (3.0, 40.0)


def test_units_are_those_of_the_targets_and_constant_targets_stay() -> None:
    targets = torch.tensor([[1.0, 7.0], [3.0, 7.0]])
    units = measure_units([(None, targets[:1]), (None, targets[1:])])
    assert units.shift.tolist() == [2.0, 7.0]
    assert units.scale.tolist() == [1.0, 1.0]


def test_the_variance_follows_the_errors_only_while_training() -> None:
    loss = GaussianLoss()
    targets = torch.tensor([2.0, -2.0])
    first = loss(torch.zeros(2, 1), targets)
    assert first.item() == pytest.approx(0.5 * (1 + math.log(4.0) + math.log(2 * math.pi)))
    with torch.no_grad():
        loss(torch.zeros(2, 1), 100 * targets)
    assert loss.variance.item() == 4.0
    loss(torch.zeros(2, 1), 2 * targets)
    assert loss.variance.item() == pytest.approx(0.95 * 4 + 0.05 * 16)


def test_several_outputs_add_up() -> None:
    loss = GaussianLoss((2,))
    value = loss(torch.zeros(2, 2), torch.tensor([[1.0, 10.0], [-1.0, -10.0]]))
    assert loss.variance.tolist() == [1.0, 100.0]
    assert value.item() == pytest.approx(1 + 0.5 * math.log(100.0) + math.log(2 * math.pi))
