"""Two processes join and leave a group again and again, each time with a DDP wrapper that outlives it.

    python -m tests.train.leaving

Prints how many times both left; a process that waits for ever is ended after a while.
"""

from __future__ import annotations

import os
import signal

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from varlearn.train.processes import processes

ROUNDS = 40
LONGEST = 100  # seconds for one round


def leave(rank: int, port: int) -> int:
    """The number of rounds that a child process has left."""
    os.environ |= {"WORLD_SIZE": "2", "RANK": str(rank), "LOCAL_RANK": str(rank), "GROUP_WORLD_SIZE": "1"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    torch.set_num_threads(1)
    for number in range(ROUNDS):
        os.environ["TORCHELASTIC_RESTART_COUNT"] = str(number)
        signal.alarm(LONGEST)
        with processes("cpu") as mine:
            network = DistributedDataParallel(nn.Linear(8, 8))
            network(torch.ones(2, 8)).sum().backward()
            with mine.together():
                pass
        del network
    return ROUNDS


def fork(rank: int, port: int) -> int:
    child = os.fork()
    if not child:
        os._exit(leave(rank, port))
    return child


if __name__ == "__main__":
    torch.optim.SGD([torch.zeros(1)])  # imports much of torch, once for both
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, multi_tenant=True, wait_for_workers=False)
    children = [fork(rank, store.port) for rank in range(2)]
    print([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children])
