"""Training runs that take a fraction of a second, and everything that a run leaves behind."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.train.tiny import tiny_run, use_tiny_data
from varlearn.train import Optim, Run, fit

_TRAIN = {"epochs": 12, "log_every": 3, "eval_every": 9, "checkpoint_every": 2}


def small_runs(world: int = 1) -> dict[str, Run]:
    """By name; about 72 steps each, a checkpoint every other step."""
    base = tiny_run("ivon", **_TRAIN)
    base = replace(base, data=replace(base.data, batch_size=max(1, 16 // world)))
    validated = replace(base, data=replace(base.data, validation=16, batch_size=max(1, 16 // world)))
    return {
        "ivon": base,
        "ivon, validated": validated,
        "vadamw": replace(base, optim=Optim("vadamw", lr=0.01)),
        "adamw": replace(base, optim=Optim("adamw", lr=0.01)),
    }


def left_behind(out: Path) -> dict[str, bytes]:
    """The bytes of all files that must not depend on interruptions; the others hold times."""
    return {
        str(path.relative_to(out)): path.read_bytes()
        for path in sorted(out.rglob("*"))
        if path.is_file() and path.name not in ("env.json", "timing.jsonl", ".lock")
    }


def trained(run: Run, out: Path) -> Callable[[], object]:
    """Train in `out`, or go on with the training in it."""

    def work() -> None:
        use_tiny_data()
        fit(run, out, resume=True, progress=False)

    return work


def fork(work: Callable[[], object], words: Path) -> int:
    """Do the work in a child process, and return its number; what it says goes to a file."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.dup2(os.open(words, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        work()
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
    finally:
        os._exit(code)


def exit_code(child: int) -> int:
    """Wait for a child process; a negative number is a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def cpu_seconds(process: int) -> float:
    """How long a process has computed, all its threads together."""
    return time.clock_gettime((~process << 3) | 2)  # as clock_getcpuclockid(3) makes it


def kill_after(child: int, seconds: float) -> bool:
    """Send SIGKILL once a child has computed for so long; False if it ended before."""
    while True:
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return False
        if cpu_seconds(child) >= seconds:
            os.kill(child, signal.SIGKILL)
            return True
        time.sleep(0.0005)
