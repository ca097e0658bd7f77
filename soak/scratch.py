"""A temporary folder in memory, where fsync costs nothing: the campaign writes millions of small files."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_IN_MEMORY = Path("/dev/shm")


@contextmanager
def scratch() -> Iterator[Path]:
    """An empty folder, removed at the end."""
    with tempfile.TemporaryDirectory(prefix="soak-", dir=_IN_MEMORY if _IN_MEMORY.is_dir() else None) as folder:
        yield Path(folder)
