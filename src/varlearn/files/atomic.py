"""Files that are whole or unchanged, and errors that say what to do when they cannot be written."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path

from safetensors import SafetensorError

TEMPORARY = ".tmp"  # how the names end under which files are written; they begin with a dot
_ORPHAN = re.compile(rf"\..*{re.escape(TEMPORARY)}|\.tmp[A-Za-z0-9]{{6}}")  # safetensors has names of the second kind


class WriteError(OSError):
    """A file could not be written; what was there before is untouched."""

    exit_code = 3


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


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what the system says when `path` cannot be written into a `WriteError` that names it.

    >>> with writing(Path("x.json")):
    ...     raise OSError(28, "No space left on device")
    Traceback (most recent call last):
    ...
    varlearn.files.atomic.WriteError: cannot write x.json: No space left on device. What was there before is ...
    """
    try:
        yield
    except (OSError, SafetensorError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise WriteError(
            f"cannot write {path}: {reason}. What was there before is untouched; free space or make the folder "
            "writable, then repeat the command (a training run: with --resume)"
        ) from error


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_text(Path(folder, "a.json"), "{}")
    ...     print(Path(folder, "a.json").read_text(), len(os.listdir(folder)))
    {} 1
    """
    with writing(path), replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def remove_orphans(folder: Path) -> list[Path]:
    """Remove the temporary files that a killed writer left in the folder, and return their paths.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, ".a.json.0123456789abcdef.tmp").write_text("half")
    ...     len(remove_orphans(Path(folder))), os.listdir(folder)
    (1, [])
    """
    orphans = sorted(path for path in folder.glob(".*") if _ORPHAN.fullmatch(path.name))
    for orphan in orphans:
        orphan.unlink(missing_ok=True)
    return orphans
