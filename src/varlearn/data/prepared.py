"""Readers of the prepared form: sheets of images (lossless WebP), arrays (.npy.xz, .npz), texts (.tsv.xz, .txt.xz).

A folder in this form may hold `SHA256SUMS` at its top, as `sha256sum` writes it; every file read is then compared with
it.
"""

from __future__ import annotations

import io
import lzma
import zipfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from varlearn.data import checksum
from varlearn.data.errors import CorruptDataError, MissingDataError

_SIDE, _COLUMNS = 32, 25  # of the images of a sheet, and of the sheet
_CURE = "put the original file back"


def content(path: Path) -> bytes:
    """The bytes of a file that must exist, be whole and agree with its folder's SHA256SUMS."""
    if not path.exists():
        raise MissingDataError(f"{path} is missing from its folder, which is therefore incomplete; {_CURE}")
    if path.is_dir():
        raise CorruptDataError(f"{path} must be a file, not a directory; {_CURE}")
    if path.stat().st_size == 0:
        raise CorruptDataError(f"{path} is empty; {_CURE}")
    expected = _expected(path)
    if expected is not None:
        checksum.verify(path, expected)
    return path.read_bytes()


def sheets(paths: Iterable[Path]) -> Tensor:
    """Images of 32x32 pixels from sheets of 25 a row: uint8 (N, 3, 32, 32), the sheets' images in reading order."""
    with ThreadPoolExecutor(2) as pool:  # decoding leaves the interpreter free
        return torch.cat(list(pool.map(_sheet, paths)))


def array(path: Path) -> Tensor:
    """The array of a .npy.xz file."""
    return torch.from_numpy(_parsed(path, lambda raw: np.load(io.BytesIO(lzma.decompress(raw)), allow_pickle=False)))


def arrays(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of a .npz file, by name."""

    def read(raw: bytes) -> dict[str, np.ndarray[Any, Any]]:
        with np.load(io.BytesIO(raw), allow_pickle=False) as file:
            return dict(file)

    return _parsed(path, read)


def text(path: Path) -> str:
    """The text of a .txt.xz file."""
    return _parsed(path, lambda raw: lzma.decompress(raw).decode("utf-8"))


def rows(path: Path, columns: int) -> list[list[str]]:
    """The rows of a .tsv.xz file, each of which must have `columns` columns."""
    table = [line.split("\t") for line in text(path).removesuffix("\n").split("\n")]
    for number, row in enumerate(table, 1):
        if len(row) != columns:
            raise CorruptDataError(f"{path} line {number} has {len(row)} columns, not {columns}; {_CURE}")
    return table


def _sheet(path: Path) -> Tensor:
    from PIL import Image

    def read(raw: bytes) -> np.ndarray[Any, Any]:
        with Image.open(io.BytesIO(raw)) as image:
            return np.array(image.convert("RGB"))

    pixels = torch.from_numpy(_parsed(path, read))
    height, width, _ = pixels.shape
    if width != _SIDE * _COLUMNS or height % _SIDE:
        raise CorruptDataError(
            f"{path} has {width}x{height} pixels, not {_SIDE * _COLUMNS} by a multiple of {_SIDE}; {_CURE}"
        )
    grid = pixels.view(height // _SIDE, _SIDE, _COLUMNS, _SIDE, 3)
    return grid.permute(0, 2, 4, 1, 3).reshape(-1, 3, _SIDE, _SIDE)


def _parsed(path: Path, read: Any) -> Any:
    raw = content(path)
    try:
        return read(raw)
    except (lzma.LZMAError, EOFError, OSError, ValueError, SyntaxError, zipfile.BadZipFile) as error:
        raise CorruptDataError(f"{path} ({len(raw):,} bytes) cannot be read: {error}; {_CURE}") from error


def _expected(path: Path) -> str | None:
    """The checksum that SHA256SUMS, in the file's folder or up to three above it, gives for a file."""
    for top in list(path.parents)[:3]:
        sums = top / "SHA256SUMS"
        if sums.is_file():
            return _sums(sums, sums.stat().st_mtime_ns).get(path.relative_to(top).as_posix())
    return None


@lru_cache(maxsize=16)
def _sums(path: Path, modified: int) -> dict[str, str]:
    pairs = (line.split(maxsplit=1) for line in path.read_text().splitlines() if line.strip())
    return {name.lstrip("*").removeprefix("./"): digest for digest, name in pairs}
