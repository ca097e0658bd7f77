"""SIGKILL at a random moment of a training run, then resume: the same bytes as a run that nobody killed.

A case trains in a child process, kills it after a random amount of its computing time, in every fourth case kills the
resumed run too, and lets the next one finish. Then every file of the run folder must equal that of an uninterrupted
run, and no temporary file may be left.
"""

from __future__ import annotations

import math
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from random import Random

import torch

from soak.isolated import isolated
from soak.part import Outcome, Part, chance
from soak.scratch import scratch
from soak.small_runs import cpu_seconds, exit_code, fork, kill_after, left_behind, small_runs, trained
from varlearn.train import Run


def cases(numbers: range, seed: int) -> Iterator[Outcome]:
    """The run follows from the number, the moments from number and seed."""
    torch.optim.SGD([torch.zeros(1)])  # imports much of torch, once for all children
    with scratch() as folder:
        runs = small_runs()
        expected: dict[str, tuple[dict[str, bytes], float]] = {}
        for number in numbers:
            name = list(runs)[number % len(runs)]
            if name not in expected:
                expected[name] = _straight(runs[name], folder / "straight")
            out = folder / "killed"
            fault = _fault(runs[name], out, expected[name], chance(seed, number), kills=2 if number % 4 == 3 else 1)
            yield Outcome(name, not fault, f"number {number}: {fault}" if fault else "")


def _straight(run: Run, out: Path) -> tuple[dict[str, bytes], float]:
    """What an uninterrupted run leaves, and how long it computes."""
    shutil.rmtree(out, ignore_errors=True)
    words = out.with_suffix(".txt")
    child = fork(trained(run, out), words)
    kill_after(child, math.inf)
    seconds = cpu_seconds(child)
    if code := exit_code(child):
        raise RuntimeError(f"the uninterrupted run ended with {code}: {words.read_text()[-500:]}")
    return left_behind(out), seconds


def _fault(run: Run, out: Path, expected: tuple[dict[str, bytes], float], random: Random, kills: int) -> str:
    """Kill and resume; returns what is wrong afterwards."""
    files, seconds = expected
    shutil.rmtree(out, ignore_errors=True)
    hits, longest, words = 0, 0.95 * seconds, out.with_suffix(".txt")
    while hits <= kills:
        child = fork(trained(run, out), words)
        kill_after(child, random.random() * longest if hits < kills else math.inf)
        code = exit_code(child)
        if code == -signal.SIGKILL or hits == kills:
            hits += 1
        elif code == 0:  # it was faster than the uninterrupted one
            shutil.rmtree(out)
            hits, longest = 0, 0.8 * longest
        if code not in (0, -signal.SIGKILL):
            return f"attempt {hits} ended with {code}: {words.read_text()[-300:]}"
    found = left_behind(out)
    differing = sorted(name for name in files.keys() | found.keys() if files.get(name) != found.get(name))
    return f"{', '.join(differing)} differ" if differing else ""


PART = Part(
    "kills",
    "A run that was killed with SIGKILL, once resumed, leaves the same bytes as an uninterrupted run",
    "kills",
    short=100,
    full=1_000,
    cases=isolated(cases, longest=300.0),
)
