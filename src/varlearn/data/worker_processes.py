"""Work for several processes, whose results come back in the order of the jobs."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing import connection
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from queue import SimpleQueue
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
    children: list[BaseProcess] = []
    idle: SimpleQueue[Connection] = SimpleQueue()
    threads = ThreadPoolExecutor(processes)  # each waits for one process
    begun: deque[Future[Result]] = deque()
    try:
        for _ in range(processes):
            idle.put(_start(work, children))
        for job in jobs:
            begun.append(threads.submit(_ask, idle, job))
            if len(begun) == 2 * processes:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
        _end(children)  # a thread that waits for one of them reads the end of its pipe
        threads.shutdown()
        while not idle.empty():
            idle.get().close()


class _WorkerError(Exception):
    """The traceback of a process, as the cause of the error that came from there."""

    def __str__(self) -> str:
        return f"in a worker process:\n{self.args[0]}"


def _start(work: Callable[..., Any], children: list[BaseProcess]) -> Connection:
    """Start a process, add it to `children`, and return the pipe to it."""
    # A new interpreter, not a fork of this one: threads and CUDA do not survive a fork.
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    with theirs:
        child = context.Process(target=_serve, args=(work, theirs), daemon=True)
        children.append(child)
        child.start()
    return ours


def _ask(idle: SimpleQueue[Connection], job: tuple[Any, ...]) -> Any:
    """Give a job to a process that has none, and wait for its result."""
    pipe = idle.get()
    try:
        pipe.send(job)
        result, error, where = pipe.recv()
    except (EOFError, OSError) as ended:
        raise ChildProcessError(
            "a process was ended from outside, perhaps for want of memory; use fewer processes and repeat the command"
        ) from ended
    finally:
        idle.put(pipe)
    if error is not None:
        raise error from _WorkerError(where)
    return result


def _end(children: list[BaseProcess]) -> None:
    """Kill the processes and wait until the last one has ended."""
    started = [child for child in children if child.pid is not None]
    for child in started:
        child.kill()
    for child in started:
        child.join()


def _serve(work: Callable[..., Any], pipe: Connection) -> None:
    """In a process: answer each job with (result, error, traceback)."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()
    while True:
        try:
            job = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send((work(*job), None, ""))
        except Exception as error:
            pipe.send((None, error, traceback.format_exc()))


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
