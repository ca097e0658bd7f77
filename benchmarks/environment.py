"""On what the figures were taken. No host names, no paths: the results are published."""

from __future__ import annotations

import ctypes
import datetime
import gc
import os
import platform
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

import torch

import varlearn

_GIB = 1 << 30


def describe(command: str) -> dict[str, str | int | float]:
    """The machine, the versions, the settings that decide speed, and the command that measures."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else -1.0
    return {
        "command": command,
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "cpu": cpu_model(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count() or 1,
        "threads": torch.get_num_threads(),
        "memory_gib": round(_meminfo("MemTotal") / _GIB, 1),
        "load_average": round(load, 2),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "varlearn": varlearn.__version__,
        "ivon_opt": _version("ivon-opt"),
        "compiler": compiler(),
        "malloc_mmap_threshold": os.environ.get("MALLOC_MMAP_THRESHOLD_", "default"),
        "malloc_trim_threshold": os.environ.get("MALLOC_TRIM_THRESHOLD_", "default"),
    }


def cpu_model() -> str:
    """As the kernel calls it."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.lower().startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def compiler() -> str:
    """Name and version of the C compiler that builds the native kernel, or "none"."""
    name = next((name for name in (os.environ.get("CC"), "cc", "gcc", "clang") if name and shutil.which(name)), None)
    if name is None:
        return "none"
    said = subprocess.run([name, "--version"], capture_output=True, text=True, check=False).stdout
    return said.splitlines()[0] if said else "unknown"


def available_memory() -> int:
    """Bytes that can be allocated without swapping, also those that this process has freed and glibc has kept."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    return _meminfo("MemAvailable")


def _meminfo(field: str) -> int:
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "none"
