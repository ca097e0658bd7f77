"""Fetch a file over HTTP: whole and verified under its name, or not at all."""

from __future__ import annotations

import os
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from http.client import HTTPException
from pathlib import Path
from typing import Any, BinaryIO

from varlearn.data import checksum
from varlearn.data.errors import DownloadError

Progress = Callable[[str, int, int | None], None]
"""Called with the file's name, the bytes received so far and the bytes expected, None where the server does not say."""

TIMEOUT = 30.0  # seconds without a byte
_CHUNK = 1 << 18


_progress: ContextVar[Progress | None] = ContextVar("progress", default=None)


@contextmanager
def reporting(progress: Progress | None) -> Iterator[None]:
    """Tell `progress` of each piece of the downloads inside the block."""
    token = _progress.set(progress)
    try:
        yield
    finally:
        _progress.reset(token)


def fetch(url: str, target: Path, expected: str | None) -> Path:
    """Download `url` to `target`.

    The bytes go to a temporary file beside the target, which gets its name when its checksum is right.

    Args:
        url: where from.
        target: where to; its folder is made.
        expected: MD5 or SHA-256, hexadecimal; None where none is published, so that only the length is checked.

    Raises:
        DownloadError: the server cannot be reached, has no such file, or sent another or a part of it.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "here").write_bytes(b"abc")
    ...     there = fetch(f"file://{folder}/here", Path(folder, "there"), "900150983cd24fb0d6963f7d28e17f72")
    ...     there.read_bytes()
    b'abc'
    """
    temporary: Path | None = None
    request = urllib.request.Request(url, headers={"User-Agent": "varlearn"})
    try:
        # urlopen would keep the proxies of its first call for good
        with urllib.request.build_opener().open(request, timeout=TIMEOUT) as answer:
            target.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
            temporary = Path(name)
            with os.fdopen(handle, "wb") as file:
                found = _receive(answer, file, expected, target.name)
                file.flush()
                os.fsync(file.fileno())
        if expected is not None and found != expected:
            raise DownloadError(f"its checksum is {found}, not {expected}")
        os.replace(temporary, target)
        temporary = None
    except (OSError, HTTPException) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()  # it holds the connection
        raise DownloadError(
            f"{url} could not be downloaded to {target}: {_reason(error)}; fetch it on another machine and put it "
            f"there as it is, or into a folder that the variable VARLEARN_DATA names"
        ) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
    return target


def _receive(answer: Any, file: BinaryIO, expected: str | None, name: str) -> str | None:
    """Write the body of the answer to `file`; returns its checksum."""
    digest, progress = checksum.new(expected) if expected is not None else None, _progress.get()
    length = answer.headers.get("Content-Length")
    total, received = int(length) if length else None, 0
    while chunk := answer.read(_CHUNK):
        file.write(chunk)
        received += len(chunk)
        if digest is not None:
            digest.update(chunk)
        if progress is not None:
            progress(name, received, total)
    if total is not None and received != total:
        raise DownloadError(f"{received:,} of {total:,} bytes came")
    return digest.hexdigest() if digest is not None else None


def _reason(error: BaseException) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"the server answers {error.code} {error.reason}"
    if isinstance(error, urllib.error.URLError):
        return f"no connection ({error.reason})"
    return str(error) or type(error).__name__
