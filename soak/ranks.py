"""Processes of one gloo group that stay alive and run many cases."""

from __future__ import annotations

import os
import tempfile
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

TIMEOUT = 60.0  # seconds that one rank waits for another


class RankPool:
    """Up to `size` ranks; started when they are first needed.

    Inside `run`, the default process group has as many ranks as the case asks for.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._workers: list[tuple[Any, Connection]] = []
        self._folder = tempfile.TemporaryDirectory()
        self._worlds = 0

    def __enter__(self) -> RankPool:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        self._folder.cleanup()

    def run(self, work: Callable[[Any, int], Any], argument: Any, ranks: int) -> list[Any]:
        """What `work(argument, rank)` returns on each rank. After a failure all ranks are started anew."""
        if not self._workers:
            self._workers = [_start(rank) for rank in range(self._size)]
        self._worlds += 1
        store = os.path.join(self._folder.name, str(self._worlds))
        chosen = self._workers[:ranks]
        for _, connection in chosen:
            connection.send((work, argument, ranks, store))
        answers = [connection.recv() if connection.poll(5 * TIMEOUT) else "no answer" for _, connection in chosen]
        failed = [answer for answer in answers if isinstance(answer, str)]
        if failed:
            self._stop()
            raise RuntimeError("; ".join(failed))
        return answers

    def _stop(self) -> None:
        for process, connection in self._workers:
            connection.close()
            process.join(5.0)
            if process.is_alive():
                process.kill()
        self._workers.clear()


def _start(rank: int) -> tuple[Any, Connection]:
    context = mp.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(rank, theirs), daemon=True)
    process.start()
    theirs.close()
    return process, ours


def _serve(rank: int, connection: Connection) -> None:
    torch.set_num_threads(1)
    while True:
        try:
            work, argument, ranks, store = connection.recv()
        except EOFError:
            return
        timeout = timedelta(seconds=TIMEOUT)
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks, timeout=timeout)
        try:
            connection.send(work(argument, rank))
        except Exception:
            connection.send(traceback.format_exc())
        finally:
            dist.destroy_process_group()
