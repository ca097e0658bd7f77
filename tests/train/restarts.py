"""A group of two processes is killed and started again twice, as torchrun's agent does it, with one store for all.

    python -m tests.train.restarts

After a restart one of the two comes late, so that the other finds in the store what the killed one left there. Prints
the rank and the world of each process for every start, as JSON; a process that could not join has none.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time

import torch.distributed as dist

from varlearn.train.processes import processes

LATE = 0.5  # seconds


def fork(rank: int, restarts: int, port: int, late: bool) -> tuple[int, int]:
    """Start a process; returns its number, and where to read what it says before it is killed."""
    read, write = os.pipe()
    child = os.fork()
    if child:
        os.close(write)
        return child, read
    os.environ |= {"WORLD_SIZE": "2", "RANK": str(rank), "LOCAL_RANK": str(rank), "GROUP_WORLD_SIZE": "1"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    os.environ["TORCHELASTIC_RESTART_COUNT"] = str(restarts)
    try:
        time.sleep(LATE if late else 0.0)
        with processes("cpu") as mine:
            mine.wait()
            os.write(write, json.dumps([mine.rank, mine.world]).encode())
            os.kill(os.getpid(), signal.SIGKILL)
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
    finally:
        sys.stderr.flush()
        os._exit(1)


def start(restarts: int, port: int) -> list[list[int] | None]:
    """What both processes of one start say."""
    children = [fork(rank, restarts, port, late=restarts > 0 and rank == restarts % 2) for rank in range(2)]
    alive = {number for number, _ in children}
    while alive:
        number, status = os.wait()
        alive.remove(number)
        if os.WIFEXITED(status):  # it could not join, and the other would wait in vain
            for other in alive:
                os.kill(other, signal.SIGKILL)
    words = []
    for _, read in children:
        with open(read) as pipe:
            text = pipe.read()
        words.append(json.loads(text) if text else None)
    return words


if __name__ == "__main__":
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, multi_tenant=True, wait_for_workers=False)
    print(json.dumps([start(restarts, store.port) for restarts in range(3)]))
