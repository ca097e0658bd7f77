"""The loop of Accelerate's documentation with IVON in it, and the same in two gloo processes."""

import os
import socket
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing as mp
from accelerate import Accelerator
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from varlearn import IVON

SETTINGS: dict[str, Any] = {"lr": 0.1, "ess": 200.0, "hess_init": 0.1, "betas": (0.9, 0.95), "seed": 7}


def net(dropout: float = 0.0) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 3))


def loader(size: int = 4) -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(3)
    inputs, targets = torch.randn(16, 4, generator=generator), torch.randint(3, (16,), generator=generator)
    return DataLoader(TensorDataset(inputs, targets), batch_size=size)


def flat(model: nn.Module) -> Tensor:
    return torch.cat([value.detach().flatten().clone() for value in model.parameters()])


class Loop:
    """The loop of Accelerate's documentation, with one more line."""

    def __init__(self, dropout: float = 0.0, clip: float | None = None, **options: Any) -> None:
        self.accelerator = Accelerator(cpu=True, **options)
        model = net(dropout)
        self.clip, self.seen = clip, list[Tensor]()
        self.model, self.optimizer, self.loader = self.accelerator.prepare(
            model, IVON(model.parameters(), **SETTINGS), loader()
        )

    def epoch(self) -> None:
        for inputs, targets in self.loader:
            with self.accelerator.accumulate(self.model):
                self.optimizer.train()
                self.seen.append(flat(self.model))
                with self.accelerator.autocast():
                    loss = cross_entropy(self.model(inputs), targets)
                self.accelerator.backward(loss)
                if self.clip is not None and self.accelerator.sync_gradients:
                    self.accelerator.clip_grad_norm_(self.model.parameters(), self.clip)
                self.optimizer.step()
                self.optimizer.zero_grad()


def worker(rank: int, port: int, folder: str) -> None:
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    torch.set_num_threads(1)
    loop = Loop(gradient_accumulation_steps=2, clip=1.0)
    for _ in range(3):
        loop.epoch()
    hess = torch.cat([loop.optimizer.state[param]["hess"].flatten() for param in loop.model.parameters()])
    torch.save({"weights": flat(loop.model), "hess": hess, "first": loop.seen[0]}, f"{folder}/{rank}.pt")
    loop.accelerator.end_training()


def run(folder: Path) -> list[dict[str, Tensor]]:
    """What each rank has after three epochs."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.start_processes(worker, args=(port, str(folder)), nprocs=2, start_method="spawn")
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]
