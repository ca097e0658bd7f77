"""What `VAdamW.for_loader` reads from loaders of all kinds, and how many steps a pass has."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
)

from varlearn.optim import VAdamW
from varlearn.optim.loader_facts import loader_facts


class Stream(IterableDataset[Any]):
    """A data set without a length."""

    def __iter__(self) -> Any:
        return iter(torch.zeros(30, 1))


def facts(loader: Any, epochs: int | None = 3, **given: Any) -> tuple[Any, Any, Any]:
    found = loader_facts(loader, epochs, given)
    return found.get("n"), found.get("batch_size"), found.get("steps")


ROWS = TensorDataset(torch.zeros(30, 1), torch.zeros(30))
PAIRS = [(torch.zeros(12, 1), torch.zeros(12)), (torch.zeros(8, 1), torch.zeros(8))]
DICTS = [{"text": "of no length", "input_ids": torch.zeros(12, 5), "labels": torch.zeros(12)}] * 2
BY_BATCH = BatchSampler(SequentialSampler(ROWS), 7, drop_last=False)


@pytest.mark.parametrize(
    ("loader", "expected"),
    [
        (DataLoader(ROWS, batch_size=7), (30, 7, 15)),
        (DataLoader(ROWS, batch_size=7, drop_last=True), (30, 7, 12)),
        (DataLoader(ROWS, batch_sampler=BY_BATCH), (30, 7, 15)),
        (DataLoader(ROWS, batch_size=100), (30, 30, 3)),  # a batch has no more terms than there are
        (DataLoader(ROWS, batch_size=4, sampler=SubsetRandomSampler(range(10))), (10, 4, 9)),
        (DataLoader(ROWS, batch_size=5, sampler=RandomSampler(ROWS, True, 100)), (30, 5, 60)),
        (PAIRS, (20, 12, 6)),
        (DICTS, (24, 12, 6)),
        ([torch.zeros(4, 2)], (4, 4, 3)),
        ([(torch.zeros(9, 4, 2), torch.zeros(4))], (4, 4, 3)),  # time first
    ],
)
def test_examples_batch_and_steps(loader: Any, expected: tuple[int, int, int]) -> None:
    assert facts(loader) == expected


@pytest.mark.parametrize("loader", [[], [0] * 5, [torch.tensor(1.0)], ["text"], None, ROWS])
def test_what_no_batch_of_tensors_says_is_left_out(loader: Any) -> None:
    assert facts(loader, None) == (None, None, None)


@pytest.mark.parametrize(
    ("loader", "given", "steps"),
    [
        (DataLoader(ROWS, batch_size=5), {"batch_size": 5}, 18),
        (DataLoader(ROWS, batch_size=5), {"batch_size": 15}, 6),  # three micro-batches per step
        (DataLoader(ROWS, batch_size=4), {"batch_size": 12}, 9),  # 8 micro-batches are 3 steps
        (DataLoader(ROWS, batch_size=5, sampler=RandomSampler(ROWS, True, 100)), {"batch_size": 10}, 30),
        (DataLoader(ROWS, batch_size=5), {"n": 300, "batch_size": 50}, 18),  # ten tokens each
        (DataLoader(ROWS, batch_size=5), {"n": 300, "batch_size": 150}, 6),
        (DataLoader(ROWS, batch_size=5), {"n": 60}, 18),  # augmented
        (DataLoader(ROWS, batch_size=5), {"steps": 7, "batch_size": 15}, 7),
        ([0] * 5, {"n": 50, "batch_size": 10}, 15),
        (DataLoader(Stream(), batch_size=4), {"n": 30}, 24),
        (iter(()), {"n": 30, "batch_size": 10}, 9),
    ],
)
def test_the_steps_follow_what_is_given(loader: Any, given: dict[str, int], steps: int) -> None:
    assert facts(loader, 3, **given)[2] == steps


def test_each_rank_has_its_part_of_the_batches() -> None:
    part = DataLoader(ROWS, batch_size=5, sampler=DistributedSampler(ROWS, num_replicas=3, rank=1))
    assert facts(part, 3, batch_size=15) == (30, 15, 6)


@pytest.mark.parametrize("loader", [DataLoader(Stream(), batch_size=4), iter(())])
def test_a_loader_without_a_length_does_not_tell_the_steps(loader: Any) -> None:
    with pytest.raises(ValueError, match="no length, so epochs=3 .* pass n and batch_size, or steps"):
        loader_facts(loader, 3)
    assert loader_facts(loader, None, {"n": 30})["n"] == 30


@pytest.mark.parametrize("epochs", [0, -1, 2.5, "3", True])
def test_epochs_must_be_a_whole_number(epochs: Any) -> None:
    with pytest.raises(ValueError, match=f"epochs={epochs!r} must be a whole number"):
        loader_facts(PAIRS, epochs)


def test_the_optimizer_takes_what_is_told() -> None:
    (group,) = VAdamW.for_loader(nn.Linear(1, 1), DataLoader(ROWS, batch_size=5), batch_size=15, epochs=2).param_groups
    assert (group["n"], group["batch_size"], group["steps"], group["prior_width"]) == (30, 15, 4, 0.2)


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(TypeError, match="model is a DataLoader; pass the network first"):
        VAdamW.for_loader(DataLoader(ROWS), nn.Linear(1, 1))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="model is a generator; pass the network"):
        VAdamW.for_model(nn.Linear(1, 1).parameters(), n=1, batch_size=1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="n=0 must be > 0"):
        VAdamW.for_loader(nn.Linear(1, 1), DataLoader(TensorDataset(torch.zeros(0, 1)), batch_size=5), epochs=2)
