"""Calls of `fit` in two processes, as `torchrun` would start them, forked from this one.

    python -m tests.fitting.fit_ranks FOLDER SCENARIO...

Rank r leaves what it found in `FOLDER/<scenario>-<r>`: the mean weights, the batches that it read, or the error.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import varlearn
from tests.fitting.small_data import classes, loader, network, numbers
from varlearn.train.training import Training

DATA = classes(64)
PAIRS = list(zip(*(part.split(8) for part in DATA), strict=True))  # 8 batches
EPOCHS = 3


def recorded(seen: list[list[int]]) -> DataLoader[Any]:
    """A shuffling loader that notes which examples it reads."""

    def noting(rows: list[Any]) -> Any:
        seen.append([int(number) for _, _, number in rows])
        return torch.stack([x for x, _, _ in rows]), torch.stack([y for _, y, _ in rows])

    data = TensorDataset(*DATA, torch.arange(len(DATA[0])))
    return DataLoader(data, batch_size=8, shuffle=True, collate_fn=noting)


def listed(rank: int, folder: Path) -> dict[str, Any]:
    fitted = varlearn.fit(network(), PAIRS, EPOCHS, method="sgd", lr=0.1, progress=False)
    return {"weights": fitted.posterior.mean}


def shuffled(rank: int, folder: Path) -> dict[str, Any]:
    seen: list[list[int]] = []
    held_out = loader(classes(30, seed=1), shuffle=False)
    fitted = varlearn.fit(network(), recorded(seen), EPOCHS, held_out, samples=4, progress=False)
    posterior = fitted.posterior
    return {"weights": posterior.mean, "std": posterior.std, "temperature": posterior.temperature, "seen": seen}


def regression(rank: int, folder: Path) -> dict[str, Any]:
    fitted = varlearn.fit(network(1, 1), loader(numbers()), EPOCHS, samples=4, progress=False)
    return {"weights": fitted.posterior.mean, "noise": fitted.noise.variance}


def stopped_and_resumed(rank: int, folder: Path) -> dict[str, Any]:
    def run(out: Path) -> dict[str, torch.Tensor]:
        data = loader(DATA, batch_size=8)
        return dict(
            varlearn.fit(network(), data, EPOCHS, folder=out, resume=True, samples=2, progress=False).posterior.mean
        )

    straight, update = run(folder / "straight"), Training.update

    def told(self: Training) -> None:
        update(self)
        if self.step == 5 and rank == 1:
            signal.raise_signal(signal.SIGTERM)

    Training.update = told
    try:
        run(folder / "stopped")
        raise AssertionError("the signal did not stop the run")
    except SystemExit:
        pass
    Training.update = update
    return {"weights": run(folder / "stopped"), "straight": straight}


def different_data(rank: int, folder: Path) -> dict[str, Any]:
    varlearn.fit(network(), PAIRS[rank::2], EPOCHS, progress=False)
    return {}


def distributed_sampler(rank: int, folder: Path) -> dict[str, Any]:
    data = TensorDataset(*DATA)
    sampler = DistributedSampler(data, num_replicas=2, rank=rank)
    varlearn.fit(network(), DataLoader(data, batch_size=8, sampler=sampler), EPOCHS, progress=False)
    return {}


def one_batch(rank: int, folder: Path) -> dict[str, Any]:
    varlearn.fit(network(), PAIRS[:1], EPOCHS, progress=False)
    return {}


def child(scenario: str, rank: int, port: int, folder: Path) -> int:
    started = os.fork()
    if started:
        return started
    os.environ |= {"WORLD_SIZE": "2", "RANK": str(rank), "LOCAL_RANK": str(rank)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    try:
        found = globals()[scenario](rank, folder)
    except ValueError as error:
        found = {"error": str(error)}
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        sys.stderr.flush()
        os._exit(1)
    torch.save(found, folder / f"{scenario}-{rank}")
    os._exit(0)


def main(folder: Path, scenarios: list[str]) -> None:
    torch.optim.SGD([torch.zeros(1)])  # imports much of torch
    for scenario in scenarios:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        children = [child(scenario, rank, port, folder) for rank in range(2)]
        codes = [os.waitstatus_to_exitcode(os.waitpid(one, 0)[1]) for one in children]
        assert codes == [0, 0], (scenario, codes)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
