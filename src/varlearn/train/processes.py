"""One process or several: the rank of this one, and what all of them agree on."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from varlearn.train.run_errors import PeerError

_left: list[dist.ProcessGroup | None] = []  # groups that were left, kept until the process ends


@dataclass(frozen=True)
class Processes:
    """This process among those that train together.

    Attributes:
        rank: its number; process 0 writes the files.
        world: how many there are.
        device: where this one computes.
    """

    rank: int
    world: int
    device: torch.device

    @property
    def writes(self) -> bool:
        """Whether this process writes the run's files and talks to the user."""
        return self.rank == 0

    def total(self, values: Tensor) -> Tensor:
        """The sum over processes of a small vector.

        >>> Processes(0, 1, torch.device("cpu")).total(torch.ones(1))
        tensor([1.])
        """
        if self.world > 1:
            values = values.to(self.device)
            dist.all_reduce(values)
        return values.cpu()

    def wait(self) -> None:
        """Until all processes are here."""
        if self.world > 1:
            dist.barrier()

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """A block in which one process may fail alone, as when process 0 writes: at its end all fail or none.

        The block must not contain anything that processes do together, which the others would wait for.

        Raises:
            PeerError: where this process did not fail and another did.

        >>> with Processes(0, 1, torch.device("cpu")).together():
        ...     raise OSError("disk full")
        Traceback (most recent call last):
        ...
        OSError: disk full
        """
        if self.world == 1:
            yield
            return
        try:
            yield
        except Exception:
            with contextlib.suppress(RuntimeError):  # no one is left to tell
                self.total(torch.ones(1))
            raise
        if self.total(torch.zeros(1)).item():
            raise PeerError(f"process {self.rank} stops because another failed; the message of that one says why")


@contextlib.contextmanager
def processes(device: torch.device | str | None = None) -> Iterator[Processes]:
    """Join the processes that `torchrun` started, if it did, and leave them afterwards.

    Args:
        device: where to compute; None for a GPU of this process's own where there is one, else the CPU.

    >>> with processes("cpu") as mine:
    ...     mine.rank, mine.world, mine.writes
    (0, 1, True)
    """
    world = int(os.environ.get("WORLD_SIZE", "1"))
    local = int(os.environ.get("LOCAL_RANK", "0"))
    if device is None:
        device = torch.device("cuda", local) if torch.cuda.is_available() else torch.device("cpu")
    device = torch.device(device)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    ours = world > 1 and not dist.is_initialized()
    if ours:
        _join("nccl" if device.type == "cuda" else "gloo")
    try:
        if dist.is_available() and dist.is_initialized():
            yield Processes(dist.get_rank(), dist.get_world_size(), device)
        else:
            yield Processes(0, 1, device)
    finally:
        if ours:
            # A DDP wrapper that outlives the group would free it while it holds the interpreter's lock. Gloo's thread
            # may want that lock then, to let go of the last reduction's tensor, and both would wait for ever.
            _left.append(dist.group.WORLD)
            dist.destroy_process_group()


def _join(backend: str) -> None:
    """Make the process group, out of sight of the groups that were there before.

    torchrun's agent keeps one store for all restarts, in which every process publishes its address under its rank; so
    do several groups of one process, one after the other. A process that starts early would find an old address there,
    and wait for ever. So each restart and each group has its own part of the store. Agents of several nodes do not
    count restarts alike; there docs/scaling.md has the cure.
    """
    restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    if os.environ.get("GROUP_WORLD_SIZE", "1") != "1":
        restarts = "0"
    if restarts == "0" and not _left:
        dist.init_process_group(backend)
        return
    store, rank, world = next(rendezvous("env://"))
    part = dist.PrefixStore(f"restart-{restarts}-group-{len(_left)}", store)
    dist.init_process_group(backend, store=part, rank=rank, world_size=world)
