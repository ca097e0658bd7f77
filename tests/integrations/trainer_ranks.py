"""Hugging Face's Trainer with IVON in two gloo processes, as torchrun would start them; what each rank saw."""

import os
import socket
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

from tests.integrations.recording_trainer import optimizer_of, trainer

VARIANTS: dict[str, dict[str, Any]] = {"own mean": {"average_tokens_across_devices": False}, "default": {}}
kept: list[Any] = []


def worker(rank: int, port: int, folder: str) -> None:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    found = {}
    for name, options in VARIANTS.items():
        done = trainer(Path(folder, name), max_steps=3, ddp_backend="gloo", **options)
        done.train()
        model = done.model
        assert isinstance(model, nn.Module)
        optimizer, params = optimizer_of(done), dict(model.named_parameters())
        found[name] = {
            "batches": done.batches,
            "seen": done.seen,
            "weights": {key: param.detach() for key, param in params.items()},
            "hess": {key: optimizer.state[param]["hess"] for key, param in params.items()},
            "decayed": done.get_decay_parameter_names(model),
        }
    torch.save(found, f"{folder}/{rank}.pt")
    kept.append(dist.group.WORLD)  # else DDP would free it last, and might wait for gloo's thread for ever
    dist.destroy_process_group()


def run(folder: Path) -> list[dict[str, dict[str, Any]]]:
    """For each rank, what it has after three steps of each variant."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.start_processes(worker, args=(port, str(folder)), nprocs=2, start_method="spawn")
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]
