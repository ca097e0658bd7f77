"""KeyboardInterrupt at every place of the package where Python delivers signals."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import varlearn

SOURCE = str(Path(varlearn.__file__).parent)
BACKWARD = {number for name, number in dis.opmap.items() if name.startswith("JUMP_BACKWARD")}


class Injector:
    """Raises KeyboardInterrupt once, at the count-th place of the package where Python looks for signals.

    These are the entry of a function, the resumption of a generator, the return of a built-in function, and the end of
    a loop's body. Between two other instructions no signal arrives.

    Attributes:
        seen: how many places were passed.
        where: the place of the interrupt, or None if there were fewer places.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self.seen = 0
        self.where: str | None = None

    def run(self, action: Callable[[], Any]) -> None:
        """Run `action`; the interrupt ends it."""
        sys.setprofile(self._profile)
        sys.settrace(self._trace)
        try:
            action()
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
            sys.setprofile(None)

    def _profile(self, frame: FrameType, event: str, _: object) -> None:
        if event in ("call", "c_return") and frame.f_code.co_filename.startswith(SOURCE):
            self._pass(frame)

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        if not frame.f_code.co_filename.startswith(SOURCE):
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        if event == "opcode" and frame.f_code.co_code[frame.f_lasti] in BACKWARD:
            self._pass(frame)
        return self._trace

    def _pass(self, frame: FrameType) -> None:
        self.seen += 1
        if self.seen == self._count:
            name = Path(frame.f_code.co_filename).relative_to(SOURCE)
            self.where = f"{name}:{frame.f_lineno} in {frame.f_code.co_name}"
            raise KeyboardInterrupt
