"""One process at a time in a folder."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from varlearn.files.atomic import writing


class BusyError(RuntimeError):
    """Another process is writing to this folder."""

    exit_code = 3


@contextlib.contextmanager
def locked(path: Path, message: str) -> Iterator[None]:
    """Keep other processes out while the block runs. The system releases the lock of a killed process.

    Args:
        path: of the lock file, which is removed at the end.
        message: of the error.

    Raises:
        BusyError: another process has the lock. Where the system has no locks, this is never raised.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, locked(Path(folder, ".lock"), "busy"):
    ...     with locked(Path(folder, ".lock"), "busy"):
    ...         pass
    Traceback (most recent call last):
    ...
    varlearn.files.locking.BusyError: busy
    """
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    while True:
        with writing(path):
            file = open(path, "a")  # noqa: SIM115
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise BusyError(message) from error
            except OSError:  # some network file systems have no locks
                pass
            if not _is_at(path, file.fileno()):
                continue  # the process that had it before has removed it
            try:
                yield
            finally:
                path.unlink(missing_ok=True)
            return


def _is_at(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False
