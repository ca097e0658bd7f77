"""Checksums of files, computed once per file and process."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

from varlearn.data.errors import CorruptDataError

_CHUNK = 1 << 20
_ALGORITHMS = {32: "md5", 64: "sha256"}  # by the number of hexadecimal digits


def new(expected: str) -> hashlib._Hash:
    """A hash object for checksums that look like `expected`: MD5 or SHA-256, by its length.

    >>> new("0" * 64).name
    'sha256'
    """
    return hashlib.new(_ALGORITHMS[len(expected)], usedforsecurity=False)


def verify(path: Path, expected: str) -> None:
    """Refuse a file whose checksum is not the expected one.

    Args:
        path: of the file.
        expected: MD5 or SHA-256, hexadecimal.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "empty")
    ...     path.touch()
    ...     verify(path, "d41d8cd98f00b204e9800998ecf8427e")
    """
    if path.is_dir():
        raise CorruptDataError(f"{path} must be a file, not a directory; remove it and put the file there")
    about = path.stat()
    found = _digest(path, about.st_size, about.st_mtime_ns, _ALGORITHMS[len(expected)])
    if found != expected:
        raise CorruptDataError(
            f"{path} ({about.st_size:,} bytes) has {_ALGORITHMS[len(expected)]} {found}, not {expected}: it is damaged "
            "or another file; remove it, and put the original there or let it be downloaded again"
        )


def of(path: Path, algorithm: str) -> str:
    """The checksum of a file, hexadecimal.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "empty")
    ...     path.touch()
    ...     of(path, "md5")
    'd41d8cd98f00b204e9800998ecf8427e'
    """
    about = path.stat()
    return _digest(path, about.st_size, about.st_mtime_ns, algorithm)


@lru_cache(maxsize=4096)
def _digest(path: Path, size: int, modified: int, algorithm: str) -> str:
    """The checksum of a file; size and time stand for its content, so that an unchanged file is read once."""
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
