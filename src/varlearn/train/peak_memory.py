"""The most memory that a run has held at a time."""

from __future__ import annotations

import contextlib
from pathlib import Path

import torch

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def reset_peak(device: torch.device) -> None:
    """Count from now on. On a CPU this needs Linux; elsewhere the peak is that of the whole process."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    else:
        with contextlib.suppress(OSError):
            _RESET.write_text("5", encoding="ascii")


def peak_bytes(device: torch.device) -> int | None:
    """The largest number of bytes allocated on a GPU, or resident on a CPU, since `reset_peak`; None if not known.

    >>> found = peak_bytes(torch.device("cpu"))
    >>> found is None or found > 1_000_000
    True
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        status = _STATUS.read_text(encoding="ascii")
    except OSError:
        return _peak_of_process()
    lines = [line.split() for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(lines[0][1]) * 1024 if lines else _peak_of_process()


def _peak_of_process() -> int | None:
    try:
        import resource
        import sys
    except ImportError:
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
