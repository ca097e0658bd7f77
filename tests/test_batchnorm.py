"""Recalibration of BatchNorm."""

import pytest
import torch
from torch import nn

from varlearn import recalibrate_batchnorm


def test_statistics_are_those_of_the_weights_as_they_are() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Dropout(0.5))
    batches = [torch.randn(64, 4) for _ in range(5)]
    recalibrate_batchnorm(model, batches)
    hidden = [model[0](batch) for batch in batches]
    expected = torch.stack([h.mean(0) for h in hidden]).mean(0)
    torch.testing.assert_close(model[1].running_mean, expected)
    variances = torch.stack([h.var(0) for h in hidden]).mean(0)
    torch.testing.assert_close(model[1].running_var, variances)


def test_modes_and_momentum_come_back() -> None:
    model = nn.Sequential(nn.BatchNorm1d(2, momentum=0.3), nn.Dropout())
    model[1].eval()
    recalibrate_batchnorm(model, [(torch.randn(8, 2), torch.zeros(8))])
    assert model.training
    assert not model[1].training
    assert model[0].momentum == 0.3


def test_a_failure_leaves_the_old_statistics() -> None:
    model = nn.Sequential(nn.BatchNorm1d(2))
    model(torch.randn(8, 2))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(ValueError, match="no batches"):
        recalibrate_batchnorm(model, [])
    with pytest.raises(RuntimeError):
        recalibrate_batchnorm(model, [torch.randn(8, 2), torch.randn(8, 3)])
    after = model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_max_batches_stops_an_endless_loader() -> None:
    model = nn.Sequential(nn.BatchNorm1d(2))
    endless = iter(lambda: torch.ones(4, 2) + torch.arange(4.0).unsqueeze(1), None)
    recalibrate_batchnorm(model, endless, max_batches=3)
    assert model[0].num_batches_tracked.item() == 3


def test_a_model_without_batchnorm_is_not_run() -> None:
    class Refuses(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise AssertionError

    recalibrate_batchnorm(Refuses(), [torch.ones(1)])
