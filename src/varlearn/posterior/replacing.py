"""Files that are whole or unchanged, whatever interrupts the writer."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

TEMPORARY = ".tmp"  # how the names end under which files are written; they begin with a dot


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Write to the path that this gives, in the same folder; at the end it is flushed to disk and becomes `path`.

    Whatever goes wrong, `path` holds either the old file or the whole new one, and no temporary file is left.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "a.txt")
    ...     with replacing(path) as temporary:
    ...         _ = temporary.write_text("whole")
    ...     path.read_text(), os.listdir(folder)
    ('whole', ['a.txt'])
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}{TEMPORARY}")
    try:
        yield temporary
        with open(temporary, "r+b") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make renames in the folder survive a power cut, where the system can open folders."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
