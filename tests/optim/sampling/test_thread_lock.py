"""Who comes in next, and who waits for nothing."""

import signal
import threading
import time
from collections.abc import Callable

import pytest

from varlearn.optim.sampling.thread_lock import ThreadLock


def until(condition: Callable[[], bool]) -> None:
    """Wait for another thread, at most a minute."""
    deadline = time.monotonic() + 60.0
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(1e-3)


def test_who_waits_longest_is_next_and_who_leaves_is_last() -> None:
    gate, order = ThreadLock(), []
    gate.enter("main")

    def visit(name: str) -> None:
        gate.enter(name)
        order.append(name)
        gate.leave(name)

    threads = [threading.Thread(target=visit, args=(name,)) for name in ("first", "second")]
    for count, thread in enumerate(threads):
        thread.start()
        until(lambda count=count: len(gate._waiting) == count + 1)
    gate.leave("main")
    visit("main")  # without a pause
    for thread in threads:
        thread.join()
    assert order == ["first", "second", "main"]
    assert not gate.is_held


def test_an_interrupt_while_waiting_leaves_nothing_behind() -> None:
    gate, release = ThreadLock(), threading.Event()

    def hold() -> None:
        gate.enter("other")
        release.wait()
        gate.leave("other")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    thread = threading.Thread(target=hold)
    thread.start()
    until(lambda: gate.is_held)
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(KeyboardInterrupt):
            gate.enter("main")
        gate.leave("main")
    finally:
        signal.signal(signal.SIGALRM, before)
        release.set()
        thread.join()
    assert not gate.is_held
    gate.enter("main")
    assert gate.is_held
