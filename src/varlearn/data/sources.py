"""Where the bytes come from: a folder of prepared data, a cache of the public files, or the network.

`folders` lists the places: the folder that the caller names, or else `VARLEARN_DATA` and then the cache
(`VARLEARN_CACHE`, by default `~/.cache/varlearn`). A place may hold a set in prepared form (see `prepared`) or as the
files that its authors publish, under their published names. Only a set that no place holds is downloaded, into the last
of them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from varlearn.data import checksum, download
from varlearn.data.errors import CorruptDataError, MissingDataError


@dataclass(frozen=True)
class Published:
    """A file as its authors publish it.

    Attributes:
        path: name below a folder of `folders`, e.g. "cifar-10-binary.tar.gz".
        url: public source; None where the file has to be asked for.
        checksum: its published MD5, or SHA-256; None where we know of none, and the content is checked instead.
    """

    path: str
    url: str | None
    checksum: str | None = None


def cache_folder() -> Path:
    """`VARLEARN_CACHE`, or `~/.cache/varlearn`."""
    return Path(os.environ.get("VARLEARN_CACHE") or Path.home() / ".cache" / "varlearn").expanduser()


def folders(root: Path | None) -> list[Path]:
    """The places to look in, first to last; downloads go to the last.

    >>> folders(Path("data"))
    [PosixPath('data')]
    """
    if root is not None:
        return [Path(root).expanduser()]
    given = os.environ.get("VARLEARN_DATA")
    if given and not Path(given).expanduser().is_dir():
        raise MissingDataError(f"VARLEARN_DATA={given} must be a folder; correct the variable or unset it")
    return ([Path(given).expanduser()] if given else []) + [cache_folder()]


def find(path: str, root: Path | None) -> Path | None:
    """The file or folder `path` in the first place that has it."""
    return next((folder / path for folder in folders(root) if (folder / path).exists()), None)


def published(file: Published, root: Path | None) -> Path:
    """A published file, from the first place that has it or downloaded, its checksum verified.

    Raises:
        MissingDataError: it is in no place and cannot be fetched; the message says what to put where.
        CorruptDataError: it is there, and damaged.
    """
    found = find(file.path, root)
    if found is None:
        target = folders(root)[-1] / file.path
        if file.url is None:
            raise MissingDataError(
                f"{file.path} is in none of {_listed(root)} and has no public address; put it at {target}, or set "
                "VARLEARN_DATA to a folder that holds it"
            )
        return download.fetch(file.url, target, file.checksum)
    if not found.is_file():
        raise CorruptDataError(f"{found} must be a file, not a directory; remove it and put {file.path} there")
    if found.stat().st_size == 0:
        raise CorruptDataError(f"{found} is empty; remove it, and put the original there or let it be downloaded again")
    if file.checksum is not None:
        checksum.verify(found, file.checksum)
    return found


def missing(what: str, root: Path | None, cure: str) -> MissingDataError:
    """The error for data that are in no place: what, where it was looked for, and what to do."""
    return MissingDataError(f"{what} is in none of {_listed(root)}; {cure}")


def _listed(root: Path | None) -> str:
    names = ", ".join(str(folder) for folder in folders(root))
    return names if root is not None or os.environ.get("VARLEARN_DATA") else f"{names} (VARLEARN_DATA is not set)"
