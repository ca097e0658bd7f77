"""One thread at a time has its sample in the weights."""

from __future__ import annotations

import threading
from collections import deque


class Gate:
    """A re-entrant lock whose holders are named, so that leaving twice is leaving once; who waits longest is next.

    The weights of a model are shared, so a second thread that asks for a sample waits until the first has put the mean
    back. `threading.RLock` counts instead of naming, and insists that the thread that came in goes out: an interrupt at
    the wrong moment, or a framework that leaves a block in another worker thread, would lock everyone out. Nor is it
    fair: threads that evaluate without a pause would keep the one that trains waiting for good.

    >>> gate = Gate()
    >>> gate.enter("a")
    >>> gate.enter("b")  # the same thread
    >>> gate.leave("a")
    >>> gate.leave("a")
    >>> gate.is_held
    True
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._owner: int | None = None
        self._holders: set[object] = set()
        self._waiting: deque[tuple[int, object]] = deque()  # threads with their holders; empty while nobody is inside

    @property
    def is_held(self) -> bool:
        """Whether someone is inside."""
        return bool(self._holders)

    def enter(self, holder: object) -> None:
        """Wait until no other thread is inside, nor came earlier. Whoever is interrupted here has to leave, too."""
        me = threading.get_ident()
        with self._changed:
            if self._holders and self._owner != me:
                self._waiting.append((me, holder))
                while holder not in self._holders:
                    self._changed.wait()
            else:
                self._owner = me
                self._holders.add(holder)

    def leave(self, holder: object) -> None:
        """The last one out lets the next thread in. Someone who is not inside may leave, too."""
        with self._changed:
            self._waiting = deque(each for each in self._waiting if each[1] is not holder)
            self._holders.discard(holder)
            if self._waiting and not self._holders:
                self._owner, first = self._waiting.popleft()
                self._holders.add(first)
                self._changed.notify_all()
