"""Loaders in random order and batches that do not fit together are refused."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

import varlearn
from varlearn.posterior import DiagGaussian

DATA = TensorDataset(torch.randn(6, 2), torch.tensor([0, 1, 0, 1, 1, 0]))


def of(loader: Any, **settings: Any) -> varlearn.Sensitivity:
    model = nn.Linear(2, 2)
    mean = {name: value.detach() for name, value in model.named_parameters()}
    q = DiagGaussian(mean, {name: torch.ones_like(value) for name, value in mean.items()}, ess=6.0)
    return varlearn.sensitivity(model, q, loader, **settings)


def prepared() -> Any:
    return pytest.importorskip("accelerate").data_loader.prepare_data_loader(DataLoader(DATA, shuffle=True))


@pytest.mark.parametrize(
    "loader",
    [
        lambda: DataLoader(DATA, shuffle=True),
        lambda: DataLoader(DATA, batch_sampler=BatchSampler(RandomSampler(DATA), 2, False)),
        lambda: DataLoader(DATA, sampler=SubsetRandomSampler(range(6))),
        lambda: DataLoader(DATA, sampler=WeightedRandomSampler([1.0] * 6, 6)),
        lambda: DataLoader(DATA, sampler=DistributedSampler(DATA, 1, 0)),
        prepared,
    ],
)
def test_every_sampler_of_random_order_is_refused(loader: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match=r"the loader shuffles.*shuffle=False"):
        of(loader())


@pytest.mark.parametrize(
    "loader",
    [
        lambda: DataLoader(DATA, batch_sampler=BatchSampler(SequentialSampler(DATA), 4, False)),
        lambda: DataLoader(DATA, sampler=DistributedSampler(DATA, 1, 0, shuffle=False)),
        lambda: DataLoader(DATA, sampler=[5, 4, 3]),
    ],
)
def test_samplers_in_a_fixed_order_are_taken(loader: Callable[[], Any]) -> None:
    found = of(loader())
    assert found.ids.tolist() == list(range(len(found.targets)))


@pytest.mark.parametrize("ids", [["a"] * 6, torch.arange(6.0), [True] * 6])
def test_ids_must_be_whole_numbers(ids: Any) -> None:
    with pytest.raises(ValueError, match=r"must be whole numbers"):
        of(DataLoader(DATA), ids=ids)


def test_inputs_and_targets_must_be_as_many() -> None:
    with pytest.raises(ValueError, match=r"inputs of shape \(6, 2\) with targets of shape \(5,\)"):
        of([(DATA.tensors[0], DATA.tensors[1][:5])])
