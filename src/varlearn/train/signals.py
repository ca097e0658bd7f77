"""Ctrl-C and SIGTERM as a request to stop after the step."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """Inside the block, the first Ctrl-C or SIGTERM is noted; a second Ctrl-C interrupts at once.

    Outside the main thread, where Python delivers no signals, nothing changes.

    Attributes:
        number: of the signal that came, or 0.

    >>> with StopRequest() as stop:
    ...     signal.raise_signal(signal.SIGTERM)
    ...     stop.number == signal.SIGTERM
    True
    """

    def __init__(self) -> None:
        self.number = 0
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _note(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self.number and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.number = number
