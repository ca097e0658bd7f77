"""One thread at a time has its sample in the weights."""

from __future__ import annotations

import threading
from types import TracebackType


class Gate:
    """A re-entrant lock that may be released by another thread than the one that took it.

    The weights of a model are shared, so a second thread that asks for a sample waits until the first has put the mean
    back. `threading.RLock` would do but for frameworks that enter a block in one worker thread and leave it in another.

    >>> gate = Gate()
    >>> with gate, gate:
    ...     print("inside twice")
    inside twice
    """

    def __init__(self) -> None:
        self._free = threading.Condition()
        self._owner: int | None = None
        self._depth = 0

    def __enter__(self) -> None:
        me = threading.get_ident()
        with self._free:
            while self._owner not in (None, me):
                self._free.wait()
            self._owner = me
            self._depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._free:
            self._depth -= 1
            if self._depth == 0:
                self._owner = None
                self._free.notify()
