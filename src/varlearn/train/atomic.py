"""Files that are whole or unchanged, and errors that say what to do when they cannot be written."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from safetensors import SafetensorError

from varlearn.posterior.replacing import TEMPORARY, replacing
from varlearn.train.errors import WriteError


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what the system says when `path` cannot be written into a `WriteError` that names it.

    >>> with writing(Path("x.json")):
    ...     raise OSError(28, "No space left on device")
    Traceback (most recent call last):
    ...
    varlearn.train.errors.WriteError: cannot write x.json: No space left on device. What was there before is ...
    """
    try:
        yield
    except (OSError, SafetensorError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise WriteError(
            f"cannot write {path}: {reason}. What was there before is untouched; free space, or make the folder "
            "writable, and resume"
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
    orphans = sorted(folder.glob(f".*{TEMPORARY}"))
    for orphan in orphans:
        orphan.unlink(missing_ok=True)
    return orphans
