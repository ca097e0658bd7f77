"""What a person sees of a run: a bar with rate and time left in a terminal, lines elsewhere."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import time
from collections.abc import Callable, Iterator

Show = Callable[[int, str], None]
"""Takes the steps done so far and a few words about them."""

LINE_EVERY = 10.0  # seconds between plain lines


@contextlib.contextmanager
def training_progress(total: int, start: int = 0, show: bool | None = None) -> Iterator[Show]:
    """Show how far a run is, on the standard error.

    Args:
        total: steps of the run.
        start: steps that were done before.
        show: False for nothing; None or True for a bar where there are rich and a terminal, and plain lines elsewhere.

    >>> with training_progress(total=2, show=False) as update:
    ...     update(1, "loss 0.5")
    """
    if show is False:
        yield lambda step, words: None
    elif sys.stderr.isatty() and importlib.util.find_spec("rich"):
        with _bar(total, start) as update:
            yield update
    else:
        yield plain_lines(total, start)


def plain_lines(total: int, start: int = 0, clock: Callable[[], float] = time.monotonic) -> Show:
    """One line at the first step, every ten seconds, and at the last step."""
    began = clock()
    said = began - LINE_EVERY

    def update(step: int, words: str) -> None:
        nonlocal said
        now = clock()
        if step < total and now - said < LINE_EVERY:
            return
        said = now
        rate = (step - start) / max(now - began, 1e-9)
        left = (total - step) / rate if rate > 0 else float("inf")
        print(f"step {step}/{total}  {words}  {rate:.3g} steps/s  {duration(left)} left", file=sys.stderr, flush=True)

    return update


def duration(seconds: float) -> str:
    """Hours, minutes and seconds for people.

    >>> duration(59.6), duration(3725), duration(float("inf"))
    ('1:00', '1:02:05', '?')
    """
    if seconds == float("inf"):
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


@contextlib.contextmanager
def _bar(total: int, start: int) -> Iterator[Show]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    began = time.monotonic()
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=total, completed=start)

        def update(step: int, words: str) -> None:
            rate = (step - start) / max(time.monotonic() - began, 1e-9)
            left = duration((total - step) / rate if rate > 0 else float("inf"))
            bar.update(task, completed=step, description=f"{words}  {rate:.3g} steps/s  {left} left")

        yield update
