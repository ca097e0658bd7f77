"""One thread at a time has its sample in the weights."""

from __future__ import annotations

import threading


class Gate:
    """A re-entrant lock whose holders are named, so that leaving twice is leaving once.

    The weights of a model are shared, so a second thread that asks for a sample waits until the first has put the mean
    back. `threading.RLock` counts instead of naming, and insists that the thread that came in goes out: an interrupt at
    the wrong moment, or a framework that leaves a block in another worker thread, would lock everyone out.

    >>> gate = Gate()
    >>> gate.enter("a")
    >>> gate.enter("b")  # the same thread
    >>> gate.leave("a")
    >>> gate.leave("a")
    >>> gate.is_held
    True
    """

    def __init__(self) -> None:
        self._free = threading.Condition()
        self._owner: int | None = None
        self._holders: set[object] = set()

    @property
    def is_held(self) -> bool:
        """Whether someone is inside."""
        return bool(self._holders)

    def enter(self, holder: object) -> None:
        """Wait until no other thread is inside."""
        me = threading.get_ident()
        with self._free:
            while self._holders and self._owner != me:
                self._free.wait()
            self._owner = me
            self._holders.add(holder)

    def leave(self, holder: object) -> None:
        """The last one out lets the next thread in. Someone who is not inside may leave, too."""
        with self._free:
            self._holders.discard(holder)
            if not self._holders:
                self._free.notify()
