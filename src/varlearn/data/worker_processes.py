"""Work for several processes, whose results come back in the order of the jobs."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, TypeVar

Result = TypeVar("Result")


def results_in_order(
    work: Callable[..., Result], jobs: Sequence[tuple[Any, ...]], processes: int
) -> Generator[Result, None, None]:
    """`work(*job)` for each job, in the order of the jobs. At most two jobs for each process are begun ahead.

    With one process the work is done in this one. However it ends, no process is left behind.

    >>> list(results_in_order(pow, [(2, 3), (3, 2)], processes=1))
    [8, 9]
    """
    processes = min(processes, len(jobs))
    if processes <= 1:
        yield from (work(*job) for job in jobs)
        return
    others = set(multiprocessing.active_children())
    # A new interpreter each, not a fork of this one: threads and CUDA do not survive a fork.
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), _begin)
    begun: deque[Future[Result]] = deque()
    try:
        for job in jobs:
            begun.append(pool.submit(work, *job))
            if len(begun) == 2 * processes:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()
    except BrokenProcessPool as error:
        raise ChildProcessError(
            "a process was ended from outside, perhaps for want of memory; use fewer processes and repeat the command"
        ) from error
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in set(multiprocessing.active_children()) - others:
            child.kill()
            _wait_for(child)


def _wait_for(child: BaseProcess) -> None:
    """Wait until the process has ended and is known to have ended.

    The pool's own thread waits for the same process. The system tells one of the two, and `join()` of the other returns
    at once, before the first has noted the exit code.
    """
    child.join()
    while child.exitcode is None:
        time.sleep(0.001)
    child.join()


def _begin() -> None:
    """Leave Ctrl-C to the parent, and end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)


def peak_memory() -> int:
    """The most memory that this process has used so far, in bytes; 0 where the system does not say."""
    status = Path("/proc/self/status")  # `getrusage` of a new process counts its parent's memory
    if not status.exists():
        return 0
    found = re.search(r"VmHWM:\s*(\d+) kB", status.read_text())
    return 1024 * int(found[1]) if found else 0
