"""`fit` in two processes: each batch is read once, the result is the same in both and that of one process."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import varlearn
from tests.fitting.fit_ranks import DATA, EPOCHS, PAIRS
from tests.fitting.small_data import network
from varlearn.fitting.batch_share import share_of_rank
from varlearn.fitting.own_batches import OwnBatches

REPOSITORY = Path(__file__).parents[2]


def both(folder: Path, *scenarios: str) -> list[list[dict[str, Any]]]:
    """What the two processes found in each scenario."""
    command = [sys.executable, "-m", "tests.fitting.fit_ranks", str(folder), *scenarios]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return [[torch.load(folder / f"{scenario}-{rank}") for rank in range(2)] for scenario in scenarios]


def assert_equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_two_processes_share_the_batches_and_have_one_result(tmp_path: Path) -> None:
    listed, shuffled, regression = both(tmp_path, "listed", "shuffled", "regression")
    for first, second in (listed, shuffled, regression):
        assert_equal(first["weights"], second["weights"])
    check_steps_of_larger_batches(listed[0]["weights"])
    assert_equal(shuffled[0]["std"], shuffled[1]["std"])
    assert shuffled[0]["temperature"] == shuffled[1]["temperature"]
    check_examples(*(found["seen"] for found in shuffled))
    assert torch.equal(regression[0]["noise"], regression[1]["noise"])


def check_steps_of_larger_batches(weights: dict[str, torch.Tensor]) -> None:
    """Two processes take the steps of one with batches twice as large."""
    joined = [
        tuple(torch.cat(parts) for parts in zip(*two, strict=True)) for two in zip(PAIRS[::2], PAIRS[1::2], strict=True)
    ]
    alone = varlearn.fit(network(), joined, EPOCHS, method="sgd", lr=0.1, progress=False).posterior.mean
    torch.testing.assert_close(weights, alone, rtol=1e-5, atol=1e-6)


def check_examples(*seen: list[list[int]]) -> None:
    """Each example is read once per epoch, by one of the processes, and epochs differ in their order."""
    steps = len(DATA[0]) // 16
    orders = []
    for epoch in range(EPOCHS):
        last = [training[-EPOCHS * steps :] for training in seen]  # before, fit looks at the data
        read = [batch for training in last for batch in training[epoch * steps : (epoch + 1) * steps]]
        orders.append([number for batch in read for number in batch])
        assert sorted(orders[-1]) == list(range(len(DATA[0])))
    assert orders[0] != orders[1]


def test_a_resumed_fit_is_bitwise_the_uninterrupted_one(tmp_path: Path) -> None:
    for found in both(tmp_path, "stopped_and_resumed")[0]:
        assert_equal(found["weights"], found["straight"])


def test_what_cannot_be_divided_is_refused_in_both_processes(tmp_path: Path) -> None:
    messages = {
        "different_data": "train_loader gives other batches in other processes, and fit divides the batches itself",
        "distributed_sampler": "train_loader has a DistributedSampler, and fit divides the batches among the processes",
        "one_batch": "train_loader gives 1 batches for 2 processes, and each needs at least one",
    }
    for message, found in zip(messages.values(), both(tmp_path, *messages), strict=True):
        assert all(message in one["error"] for one in found)


@pytest.mark.parametrize("kind", ["pairs", "loader", "no batch sampler", "own generator"])
def test_shares_are_disjoint_and_cover_what_divides(kind: str) -> None:
    data = TensorDataset(torch.arange(22.0)[:, None], torch.arange(22))
    chance = torch.Generator()
    loaders: dict[str, Any] = {
        "pairs": [(x[None], y[None]) for x, y in data],
        "loader": DataLoader(data, batch_size=2, shuffle=True),
        "no batch sampler": DataLoader([(x[None], y[None]) for x, y in data], batch_size=None, shuffle=True),
        "own generator": DataLoader(data, batch_size=2, shuffle=True, generator=chance),
    }
    whole = OwnBatches(loaders[kind], "train_loader", seed=3)
    passes = []
    for number in range(2):
        order = [tuple(targets.tolist()) for _, targets in whole.epoch(number)]
        shares = [
            [tuple(targets.tolist()) for _, targets in share_of_rank(whole, rank, 3).epoch(number)] for rank in range(3)
        ]
        count = len(order) // 3
        assert shares == [order[rank : 3 * count : 3] for rank in range(3)]
        passes.append(order)
    assert (passes[0] == passes[1]) == (kind == "pairs")
