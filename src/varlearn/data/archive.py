"""Read files out of archives, without unpacking them and without trusting their paths."""

from __future__ import annotations

import re
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from varlearn.data.errors import CorruptDataError


def tarred(path: Path, pattern: str) -> Iterator[tuple[str, bytes]]:
    """(name, content) of the files of a tar archive whose whole name matches a pattern, in the archive's order.

    One pass: looking files up by their names would unpack a compressed archive again and again.
    """
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                file = archive.extractfile(member) if re.fullmatch(pattern, member.name) else None
                if file is not None:
                    yield member.name, file.read()
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise CorruptDataError(f"{path} cannot be unpacked ({error}); fetch it again") from error


def members(path: Path, names: list[str]) -> list[bytes]:
    """The contents of the named files of a tar archive, in the order of the names."""
    found = dict(tarred(path, "|".join(map(re.escape, names))))
    for name in names:
        if not found.get(name):
            raise CorruptDataError(f"{path} has nothing in {name}; fetch it again")
    return [found[name] for name in names]


def zipped(path: Path, name: str) -> bytes:
    """The content of a file of a zip archive."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.read(name)
    except (KeyError, zipfile.BadZipFile, EOFError, OSError, zlib.error) as error:
        raise CorruptDataError(f"{path} has no readable {name} ({error}); fetch it again") from error
