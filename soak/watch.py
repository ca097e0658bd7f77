"""What a piece of code does besides returning: CPU seconds, memory, and whether anything was executed."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# What data must never make the interpreter do. `open` is judged by its mode.
FORBIDDEN = frozenset({
    "compile", "exec", "import", "os.exec", "os.fork", "os.posix_spawn", "os.remove", "os.rename", "os.rmdir",
    "os.spawn", "os.system", "pickle.find_class", "marshal.load", "marshal.loads", "shutil.rmtree", "socket.connect",
    "socket.bind", "subprocess.Popen", "ctypes.dlopen", "urllib.Request",
})  # fmt: skip
_WRITING = frozenset("wax+")
_state: dict[str, Any] = {"armed": False, "seen": []}


class Watched:
    """What was seen: `executed` names forbidden events, `measured` has CPU seconds and MiB."""

    def __init__(self) -> None:
        self.executed: list[str] = []
        self.measured: dict[str, float] = {}


@contextmanager
def watched(peak_before: float) -> Iterator[Watched]:
    """Watch a block; forbidden events are recorded, not prevented.

    Args:
        peak_before: MiB, from `peak()` after a warm-up; what goes beyond it counts as used by the cases.
    """
    found = Watched()
    _state["seen"], _state["armed"] = found.executed, True
    began = time.process_time()  # a busy machine does not count
    try:
        yield found
    finally:
        _state["armed"] = False
        found.measured = {"seconds": time.process_time() - began, "MiB": max(0.0, peak() - peak_before)}


def peak() -> float:
    """The largest memory of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if not _state["armed"]:
        return
    if event == "open" and isinstance(arguments[1], str) and _WRITING & set(arguments[1]):
        _state["seen"].append(f"open {arguments[0]} for writing")
    elif event in FORBIDDEN and not _by_the_library(event):
        _state["seen"].append(f"{event} {str(arguments)[:100]}")


def _by_the_library(event: str) -> bool:
    """Whether Python's own modules evaluate annotations of our sources, or make a class of a fixed text."""
    if event not in ("compile", "exec"):
        return False
    frame = sys._getframe(2)
    return Path(frame.f_code.co_filename).name in ("typing.py", "dataclasses.py")


sys.addaudithook(_hook)
