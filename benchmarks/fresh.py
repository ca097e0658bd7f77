"""A measurement in a process of its own: `python -m benchmarks.MODULE ARGUMENTS` prints JSON in its last line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import torch

from benchmarks.results import REPO

# Freed memory is kept and used again. By itself glibc gives large blocks back, and every new one is made of new pages.
KEEPING = {"MALLOC_MMAP_THRESHOLD_": "8589934592", "MALLOC_TRIM_THRESHOLD_": "17179869184"}


def measured(module: str, *arguments: str, keeps_memory: bool = False) -> Any:
    """What a module of the benchmarks prints, run with these arguments and as many threads as this process has.

    Args:
        module: its name in this package.
        arguments: of its command line.
        keeps_memory: whether malloc keeps what is freed; otherwise it is as it comes.
    """
    settings = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    settings |= KEEPING if keeps_memory else {}
    settings["OMP_NUM_THREADS"] = str(torch.get_num_threads())
    command = [sys.executable, "-m", f"benchmarks.{module}", *arguments]
    done = subprocess.run(command, cwd=REPO, env=settings, capture_output=True, text=True, check=False)
    if done.returncode:
        which = " on ".join(map(repr, arguments))
        raise RuntimeError(f"{which} ended with code {done.returncode}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])
