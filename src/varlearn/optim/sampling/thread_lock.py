"""One thread at a time has its sample in the weights."""

from __future__ import annotations

import threading
from collections import deque


class ThreadLock:
    """A re-entrant lock with named holders that serves threads in the order in which they asked.

    The weights of a model are shared, so a second thread that asks for a sample waits until the first has put the mean
    back. `threading.RLock` is not enough, for three reasons. It counts its holders, so after an interrupt at the wrong
    moment it would stay locked; here a holder that leaves twice leaves once. It must be released by the thread that
    took it, but some frameworks leave a block in another worker thread. And it is not fair: threads that evaluate
    without a pause would keep the training thread waiting forever.

    >>> lock = ThreadLock()
    >>> lock.enter("a")
    >>> lock.enter("b")  # the same thread
    >>> lock.leave("a")
    >>> lock.leave("a")
    >>> lock.is_held
    True
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._owner: int | None = None
        self._holders: set[object] = set()
        self._waiting: deque[tuple[int, object]] = deque()  # threads with their holders; empty while the lock is free

    @property
    def is_held(self) -> bool:
        """Whether a thread holds the lock."""
        return bool(self._holders)

    def has(self, holder: object) -> bool:
        """Whether this holder has the lock."""
        return holder in self._holders

    def enter(self, holder: object) -> None:
        """Wait until no other thread holds the lock or asked earlier. Call `leave` also after an interrupt in here."""
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
        """Release; the last holder hands the lock to the next thread. Nothing happens if the holder has no lock."""
        with self._changed:
            self._waiting = deque(each for each in self._waiting if each[1] is not holder)
            self._holders.discard(holder)
            if self._waiting and not self._holders:
                self._owner, first = self._waiting.popleft()
                self._holders.add(first)
                self._changed.notify_all()
