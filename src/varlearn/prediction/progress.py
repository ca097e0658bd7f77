"""Progress of long work: a bar where rich and a terminal are there, plain lines where asked for, else nothing."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import time
from collections.abc import Callable, Iterator

_LINE_EVERY = 5.0  # seconds between plain lines
_BAR_AFTER = 1.0  # seconds of work before a bar appears


@contextlib.contextmanager
def tracked(what: str, total: int, show: bool | None = None) -> Iterator[Callable[[int], None]]:
    """Show how many of `total` steps are done, on the standard error.

    Args:
        what: a word or two before the bar.
        total: number of steps.
        show: True always, False never, None in a terminal that has rich.

    Yields:
        A function to call with the number of steps that were just done.

    >>> with tracked("predict", total=2, show=False) as advance:
    ...     advance(2)
    """
    terminal = sys.stderr.isatty()
    if show is False or (show is None and not terminal):
        yield lambda steps: None
    elif terminal and importlib.util.find_spec("rich"):
        with _bar(what, total) as advance:
            yield advance
    elif show:
        yield _lines(what, total)
    else:
        yield lambda steps: None


@contextlib.contextmanager
def _bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    from rich.console import Console
    from rich.progress import Progress

    bar = Progress(console=Console(stderr=True), transient=True)
    task = bar.add_task(what, total=total)
    began = time.monotonic()
    running = False

    def advance(steps: int) -> None:
        nonlocal running
        bar.advance(task, steps)
        if not running and time.monotonic() - began > _BAR_AFTER:
            bar.start()
            running = True

    try:
        yield advance
    finally:
        if running:
            bar.stop()


def _lines(what: str, total: int) -> Callable[[int], None]:
    done = 0
    said = time.monotonic()

    def advance(steps: int) -> None:
        nonlocal done, said
        done += steps
        if done == total or time.monotonic() - said > _LINE_EVERY:
            said = time.monotonic()
            print(f"{what}: {done}/{total}", file=sys.stderr, flush=True)

    return advance
