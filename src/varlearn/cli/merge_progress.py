"""The progress of a merge, on a terminal alone."""

from __future__ import annotations

import sys
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn


class MergeProgress:
    """A bar with the bytes that are written; nothing where standard error is no terminal.

    Args:
        quiet: show nothing.
    """

    def __init__(self, quiet: bool):
        console = Console(stderr=True)
        self._bar = Progress(
            "merging", BarColumn(), DownloadColumn(), TimeRemainingColumn(), console=console, transient=True,
            disable=quiet or not sys.stderr.isatty(),
        )  # fmt: skip
        self._task = self._bar.add_task("merging", total=None)

    def __enter__(self) -> MergeProgress:
        """Start drawing."""
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop drawing."""
        self._bar.stop()

    def show(self, done: int, total: int) -> None:
        """Draw what is done."""
        self._bar.update(self._task, completed=done, total=total)
