"""Start gloo processes once, run several worlds of different sizes in them, and collect what each rank saw."""

import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

DEADLINE = 840.0  # seconds for everything; a deadlock ends the processes instead of hanging the suite


class World(NamedTuple):
    """A process group of ranks 0 to size - 1, what they do in it, and how long one waits for another."""

    size: int
    work: Callable[[int, Path], dict[str, Any]]
    timeout: float = 240.0


def run(worlds: list[World], folder: Path) -> list[list[dict[str, Any]]]:
    """For each world, the result of each of its ranks."""
    count = max(world.size for world in worlds)
    context = mp.start_processes(_process, args=(worlds, str(folder)), nprocs=count, join=False, start_method="spawn")
    assert context is not None
    end = time.monotonic() + DEADLINE
    try:
        while not context.join(timeout=1.0):
            if time.monotonic() > end:
                raise TimeoutError(f"{count} processes did not finish in {DEADLINE:.0f} s")
    finally:
        for process in context.processes:
            if process is not None and process.is_alive():
                process.kill()
                process.join()
    return [
        [torch.load(folder / f"{number}-{rank}.pt", weights_only=False) for rank in range(world.size)]
        for number, world in enumerate(worlds)
    ]


def _process(rank: int, worlds: list[World], folder: str) -> None:
    torch.set_num_threads(1)
    for number, world in enumerate(worlds):
        if rank >= world.size:
            continue
        store = f"file://{folder}/store-{number}"
        timeout = timedelta(seconds=world.timeout)
        dist.init_process_group("gloo", init_method=store, rank=rank, world_size=world.size, timeout=timeout)
        try:
            torch.save(world.work(rank, Path(folder)), f"{folder}/{number}-{rank}.pt")
        finally:
            dist.destroy_process_group()
