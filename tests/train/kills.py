"""Start a run again and again, kill each with SIGKILL after a random while, let the last one finish.

    python -m tests.train.kills CONFIG OUT KILLS SEED

Every attempt is a process of its own, forked from this one, which has imported everything: seconds saved each time.
Prints how many of the kills hit a process that was still training.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

from tests.train.tiny import use_tiny_data
from varlearn.train import Run, fit, from_json


def fork_fit(run: Run, out: Path) -> int:
    """Train in a child process; return its number."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            fit(run, out, resume=True, progress=False)
            code = 0
        finally:
            os._exit(code)
    return child


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def killed(run: Run, out: Path, delay: float) -> bool:
    """Kill an attempt some seconds after it has begun to write; return whether it was still running."""
    before = size(out / "timing.jsonl")
    child = fork_fit(run, out)
    began = time.monotonic()
    while size(out / "timing.jsonl") <= before and time.monotonic() - began < 10:
        time.sleep(0.001)
    time.sleep(delay)
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def main(config: str, out: str, kills: str, seed: str) -> None:
    use_tiny_data()
    run, chance = from_json(Path(config).read_text()), random.Random(int(seed))
    torch.optim.SGD([torch.zeros(1)])  # imports much of torch
    hits = sum(killed(run, Path(out), chance.random() * 0.1) for _ in range(int(kills)))
    code = os.waitstatus_to_exitcode(os.waitpid(fork_fit(run, Path(out)), 0)[1])
    if code:
        raise SystemExit(f"the last attempt ended with {code}")
    print(hits)


if __name__ == "__main__":
    main(*sys.argv[1:])
