"""The documents of a large corpus, read as streams: a piece of text at a time, however large the files are.

| file                                     | its documents                                                           |
|------------------------------------------|-------------------------------------------------------------------------|
| `.txt`                                   | separated by `<|endoftext|>`                                            |
| `.jsonl`                                 | one object a line, with the key "text"                                  |
| `.parquet`                               | one row each, in the column "text"; needs pyarrow                       |
| `.tar`                                   | its `.txt` members; members that are archives themselves are read too   |
| any but `.parquet` with `.gz` or `.xz`   | those of the file inside; a bare `.xz` or `.gz` is an archive           |

A file is read in units, so that several processes can share it and an interrupted reader can go on. Uncompressed `.txt`
and `.jsonl` files are cut into units of 64 MB, other files are units themselves.
"""

from __future__ import annotations

import gzip
import json
import lzma
import os
import re
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from varlearn.data.errors import CorruptDataError, MissingDataError

UNIT = 64_000_000  # bytes
PIECE = 1_000_000  # bytes of text that are encoded together
_SEPARATOR = b"<|endoftext|>"
# A word always ends before a space or line end that follows a printing ASCII character, so text may be cut there. After
# a ">" it is not, so that no cut stands right after a separator.
_CUT = re.compile(rb"(?<=[!-=?-~])[ \n]")
_OPENERS: dict[str, Callable[[Path], Any]] = {".gz": gzip.open, ".xz": lzma.open}
_FORMATS = (".txt", ".jsonl", ".parquet", ".tar")
_DAMAGE = (tarfile.TarError, lzma.LZMAError, gzip.BadGzipFile, EOFError, zlib.error)


class Unit(NamedTuple):
    """A part of a file: the bytes from `start` to `end`, cut where text may be; the whole file where `end` is None."""

    path: Path
    start: int = 0
    end: int | None = None


class Piece(NamedTuple):
    """Some text, and whether a document ends with it."""

    text: str
    is_end: bool


def source_files(sources: Iterable[Path]) -> list[Path]:
    """The files of a corpus: those that are named, and those in folders that are named, in alphabetical order.

    Raises:
        MissingDataError: a source does not exist, or a folder has no file that can be read.
        ValueError: a file has another format.
    """
    files: list[Path] = []
    for source in sources:
        if source.is_dir():
            inside = sorted(path for path in source.rglob("*") if path.is_file() and format_of(path))
            if not inside:
                raise MissingDataError(f"{source} has no file that ends in {', '.join(_FORMATS)}, .gz or .xz")
            files += inside
        elif not source.exists():
            raise MissingDataError(f"{source} does not exist; give the files of the corpus, or their folder")
        elif not format_of(source):
            raise ValueError(f"{source} must end in {', '.join(_FORMATS)}, .gz or .xz")
        else:
            files.append(source)
    return files


def format_of(path: Path) -> str:
    """How a file is read: one of the formats above; "" for none.

    >>> format_of(Path("a.jsonl.gz")), format_of(Path("subset00_data.xz")), format_of(Path("b.pdf"))
    ('.jsonl', '.tar', '')
    """
    name = path.name.lower()
    if name.endswith(".tgz"):
        return ".tar"
    suffix = os.path.splitext(name)[1]
    if suffix in _OPENERS:
        inner = os.path.splitext(name[: -len(suffix)])[1]
        return inner if inner in (".txt", ".jsonl") else ".tar"
    return suffix if suffix in _FORMATS else ""


def units(files: Iterable[Path], size: int = UNIT) -> list[Unit]:
    """The files as units of at most about `size` bytes, where they can be cut."""
    found: list[Unit] = []
    for path in files:
        total = path.stat().st_size
        if path.suffix.lower() in (".txt", ".jsonl"):
            found += [Unit(path, start, min(total, start + size)) for start in range(0, max(total, 1), size)]
        else:
            found.append(Unit(path))
    return found


def pieces(unit: Unit) -> Iterator[Piece]:
    """The text of a unit, in order. Pieces have about a megabyte at most, and end where words do.

    Raises:
        CorruptDataError: the file is damaged, or is no text in UTF-8; the message names it.
    """
    form = format_of(unit.path)
    try:
        match form:
            case ".txt":
                yield from _plain(unit)
            case ".jsonl":
                yield from _json_lines(_lines(unit), unit.path)
            case ".parquet":
                yield from _parquet(unit.path)
            case _:
                with tarfile.open(unit.path) as archive:
                    yield from _members(archive, unit.path)
    except _DAMAGE as error:
        raise CorruptDataError(f"{unit.path} cannot be unpacked ({error}); fetch it again") from error


def _opened(path: Path) -> IO[bytes]:
    return _OPENERS.get(path.suffix.lower(), lambda path: path.open("rb"))(path)


def _cut(path: Path, place: int) -> tuple[int, bool]:
    """Where the text of a file may be cut, at `place` or after it, and whether that is inside of a document.

    After a separator if there is one within a megabyte, else at the end of a word.
    """
    before = len(_SEPARATOR)
    with path.open("rb") as file:
        file.seek(max(0, place - before))
        text = file.read(PIECE + before)
        skipped = min(place, before)
        if place == 0 or place >= path.stat().st_size:
            return place, False
        if (found := text.find(_SEPARATOR)) >= 0:
            return place - skipped + found + before, False
        while not (cut := _CUT.search(text, skipped)):
            if not (more := file.read(PIECE)):
                return path.stat().st_size, False
            text += more
        return place - skipped + cut.start(), True


def _blocks(path: Path, start: int, end: int | None) -> Iterator[bytes]:
    with _opened(path) as file:
        file.seek(start)
        left: float = float("inf") if end is None else end - start
        while left > 0 and (block := file.read(int(min(PIECE, left)))):
            left -= len(block)
            yield block


def _plain(unit: Unit) -> Iterator[Piece]:
    path, waiting = unit.path, b""
    start, is_open = _cut(path, unit.start)
    end, goes_on = (None, False) if unit.end is None else _cut(path, unit.end)
    for block in _blocks(path, start, end):
        *documents, waiting = (waiting + block).split(_SEPARATOR)
        for document in documents:
            yield from _of_document(document, path, is_open)
            is_open = False
        # The last characters may be the begin of a separator.
        while len(waiting) > 2 * PIECE and (cut := _CUT.search(waiting, PIECE, len(waiting) - len(_SEPARATOR))):
            yield Piece(_decoded(waiting[: cut.start()], path), False)
            waiting, is_open = waiting[cut.start() :], True
    if not goes_on:
        yield from _of_document(waiting, path, is_open)
    elif waiting:
        yield Piece(_decoded(waiting, path), False)


def _json_lines(lines: Iterable[bytes], path: Path) -> Iterator[Piece]:
    for line in lines:
        if not line.strip():
            continue
        try:
            text = json.loads(line)["text"]
        except (ValueError, KeyError, TypeError):
            start = line[:60].decode("utf-8", errors="replace")
            raise CorruptDataError(f"{path} has the line {start!r}, which is no JSON object with a key text") from None
        if not isinstance(text, str):
            raise CorruptDataError(f"{path} has a text of type {type(text).__name__}, which must be a string")
        yield from _of_document(text.encode("utf-8", errors="surrogatepass"), path)


def _lines(unit: Unit) -> Iterator[bytes]:
    """The lines that begin in a unit."""
    with _opened(unit.path) as file:
        if unit.start:
            file.seek(unit.start - 1)
            file.readline()
        while (unit.end is None or file.tell() < unit.end) and (line := file.readline()):
            yield line


def _parquet(path: Path) -> Iterator[Piece]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            if "text" not in file.schema_arrow.names:
                raise CorruptDataError(f"{path} has no column text, but {', '.join(file.schema_arrow.names)}")
            for batch in file.iter_batches(batch_size=64, columns=["text"]):
                for text in batch.column(0):
                    yield from _of_document((text.as_py() or "").encode("utf-8"), path)
    except pa.ArrowException as error:
        raise CorruptDataError(f"{path} cannot be read ({error}); fetch it again") from error


def _members(archive: tarfile.TarFile, path: Path) -> Iterator[Piece]:
    for member in archive:
        file = archive.extractfile(member) if member.isfile() else None
        if file is None:
            continue
        if member.name.endswith(".txt"):
            yield from _of_document(file.read(), path)
        elif member.name.endswith((".tar", ".xz", ".gz")):
            with tarfile.open(fileobj=file, mode="r|*") as inner:
                yield from _members(inner, path)


def _of_document(document: bytes, path: Path, is_open: bool = False) -> Iterator[Piece]:
    """A document as pieces. One without text is none, unless it is the end of one that `is_open`."""
    begin = 0
    while len(document) - begin > 2 * PIECE and (cut := _CUT.search(document, begin + PIECE)):
        yield Piece(_decoded(document[begin : cut.start()], path), False)
        begin = cut.start()
    if is_open or document[begin:].strip():
        yield Piece(_decoded(document[begin:], path), True)


def _decoded(text: bytes, path: Path) -> str:
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptDataError(f"{path} must be text in UTF-8, but {error}; convert it") from error
