"""SIGKILL of one rank under torchrun's agent: the group starts again, resumes, and leaves the same bytes.

A case runs torchrun's agent (`elastic_launch`) with two or three workers over gloo, forked from this process, which has
imported everything. One worker is killed after a random amount of its computing time. The agent ends the others and
starts all again; they resume and finish. Every file of the run folder must equal that of an uninterrupted run with as
many workers, and no case may take more than 60 seconds after the kill.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random

import torch
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from soak.isolated import isolated
from soak.part import Outcome, Part, chance
from soak.scratch import scratch
from soak.small_runs import cpu_seconds, exit_code, fork, left_behind, small_runs, trained
from varlearn.train import Run

LONGEST = 60.0  # seconds after the kill
_START = 60.0  # seconds in which all workers must have begun


def cases(numbers: range, seed: int) -> Iterator[Outcome]:
    """World size and run follow from the number, rank and moment from number and seed."""
    torch.optim.SGD([torch.zeros(1)])  # imports much of torch, once for all children
    with scratch() as folder:
        expected: dict[tuple[int, str], tuple[dict[str, bytes], float]] = {}
        for number in numbers:
            world = 2 + number % 2
            runs = small_runs(world)
            name = list(runs)[number // 2 % len(runs)]
            if (world, name) not in expected:
                expected[world, name] = _straight(runs[name], world, folder / "straight")
            fault, seconds = _fault(runs[name], world, folder / "killed", expected[world, name], chance(seed, number))
            kind = f"{world} ranks, {name}"
            yield Outcome(kind, not fault, f"number {number}: {fault}" if fault else "", {"seconds": seconds})


def _launched(run: Run, world: int, out: Path) -> int:
    """Start the agent in a child process; each worker writes its number to `pids-<restarts>-<rank>` beside `out`."""
    for path in out.parent.glob("pids-*"):
        path.unlink()
    shutil.rmtree(out, ignore_errors=True)
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=world,
        run_id=f"soak-{os.getpid()}-{time.monotonic_ns()}",
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=3,
        monitor_interval=0.1,
        start_method="fork",
    )
    return fork(partial(elastic_launch(config, _worker), run, out), out.with_suffix(".txt"))


def _worker(run: Run, out: Path) -> None:
    torch.set_num_threads(1)
    restarts, rank = os.environ["TORCHELASTIC_RESTART_COUNT"], os.environ["RANK"]
    unfinished = out.parent / f"unfinished-{rank}"
    unfinished.write_text(str(os.getpid()))
    unfinished.rename(out.parent / f"pids-{restarts}-{rank}")
    sys.excepthook = sys.__excepthook__
    trained(run, out)()


def _straight(run: Run, world: int, out: Path) -> tuple[dict[str, bytes], float]:
    """What an uninterrupted run leaves, and how long its first worker computes."""
    agent, seconds = _launched(run, world, out), 0.0
    worker = _pid(out, 0)
    while os.waitid(os.P_PID, agent, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        with contextlib.suppress(OSError):  # it has ended
            seconds = cpu_seconds(worker)
        time.sleep(0.002)
    if code := exit_code(agent):
        raise RuntimeError(f"the uninterrupted run ended with {code}: {out.with_suffix('.txt').read_text()[-1500:]}")
    return left_behind(out), seconds


def _fault(
    run: Run, world: int, out: Path, expected: tuple[dict[str, bytes], float], random: Random
) -> tuple[str, float]:
    """Kill one rank; returns what is wrong afterwards, and the seconds from the kill to the end."""
    files, computing = expected
    longest = 0.95 * computing
    while True:
        agent = _launched(run, world, out)
        worker = _pid(out, random.randrange(world))
        killed, killed_at = _killed(worker, random.random() * longest), time.monotonic()
        code = _ended(agent, LONGEST)
        seconds = time.monotonic() - killed_at
        if killed and (code != 0 or (out.parent / "pids-1-0").exists()):
            break
        longest *= 0.8  # it had finished before
    words = out.with_suffix(".txt").read_text()[-300:]
    if code is None:
        return f"still running {LONGEST:g} s after the kill: {words}", seconds
    if code:
        return f"the agent ended with {code}: {words}", seconds
    found = left_behind(out)
    differing = sorted(name for name in files.keys() | found.keys() if files.get(name) != found.get(name))
    return (f"{', '.join(differing)} differ" if differing else ""), seconds


def _pid(out: Path, rank: int) -> int:
    """The process of a rank of the first start."""
    path, end = out.parent / f"pids-0-{rank}", time.monotonic() + _START
    while not path.exists():
        if time.monotonic() > end:
            raise TimeoutError(f"rank {rank} has not begun after {_START:g} s: {out.with_suffix('.txt').read_text()}")
        time.sleep(0.001)
    return int(path.read_text())


def _killed(worker: int, seconds: float) -> bool:
    """Send SIGKILL once a process, which is not our child, has computed for so long; False if it ended before."""
    try:
        while cpu_seconds(worker) < seconds:
            time.sleep(0.0005)
        os.kill(worker, signal.SIGKILL)
    except OSError:
        return False
    return True


def _ended(agent: int, longest: float) -> int | None:
    """The exit code of the agent; None if it had to be ended, with its workers."""
    end = time.monotonic() + longest
    while time.monotonic() < end:
        if os.waitid(os.P_PID, agent, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return exit_code(agent)
        time.sleep(0.002)
    os.kill(agent, signal.SIGTERM)  # the agent ends its workers
    exit_code(agent)
    return None


PART = Part(
    "rank_kills",
    "Of 2 or 3 ranks under torchrun's agent one is killed: all restart, and leave the same bytes within 60 s",
    "kills",
    short=10,
    full=100,
    cases=isolated(cases, longest=400.0),
)
