"""The machine and the packages that a run was made with: `env.json`."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from varlearn.files.checked_json import read_json, write_json
from varlearn.files.formats import CorruptFileError

PACKAGES = ("varlearn", "torch", "safetensors", "numpy")


def environment(device: torch.device, world: int = 1) -> dict[str, Any]:
    """Packages, processor and numbers of threads and processes: what besides the configuration decides the bits.

    >>> environment(torch.device("cpu"))["device"]
    'cpu'
    """
    return {
        "cpu": _cpu(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "packages": {name: _version(name) for name in PACKAGES},
        "platform": platform.platform(),
        "processes": world,
        "python": platform.python_version(),
        "threads": torch.get_num_threads(),
        "onednn_max_cpu_isa": os.environ.get("ONEDNN_MAX_CPU_ISA", ""),
    }


def record_environment(path: Path, now: dict[str, Any], say: Callable[[str], None]) -> None:
    """Write the environment to a file; where it is there already, compare, and tell the user of a difference.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for threads in (1, 1, 2):
    ...         record_environment(Path(folder, "env.json"), {"threads": threads}, print)
    the machine or a package differs from ...env.json: the result may differ in the bits
    """
    if path.exists():
        try:
            before = read_json(path)
        except CorruptFileError as error:
            say(f"{error}. It is replaced")
        else:
            if before != now:
                say(f"the machine or a package differs from {path}: the result may differ in the bits")
            return
    write_json(path, now)


def _cpu() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
