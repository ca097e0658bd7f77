"""JSON files and lines that carry a checksum of their own text; readers verify it.

A document has one more key, "sha256": the SHA-256 of its text with these 64 characters replaced by zeros. It stands in
the last line with the closing brace, so no part of the document without it is valid JSON. A line of a
log ends with "crc32" in the same way, eight characters. Before it stands "after", the CRC-32 of the whole line before
this one, so that a line that is missing or in another place is noticed. Files without a checksum, of version 0.1 or
written by hand, are read as they are.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from varlearn.files.atomic import write_text
from varlearn.files.formats import CorruptFileError

DOCUMENT_KEY, LINE_KEY, LINK_KEY = "sha256", "crc32", "after"
_BLANK_DOCUMENT, _BLANK_LINE = "0" * 64, "0" * 8
_HALF_LINE = re.compile(rb'\{("[ -~]*)?')  # what a killed writer leaves: json.dumps writes printable ASCII
_HEX = {DOCUMENT_KEY: re.compile("[0-9a-f]{64}"), LINE_KEY: re.compile("[0-9a-f]{8}")}


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write a JSON object with sorted keys and its checksum, whole or not at all.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_json(Path(folder, "a.json"), {"nll": 0.5})
    ...     read_json(Path(folder, "a.json"))
    {'nll': 0.5}
    """
    body = json.dumps(values, indent=2, sort_keys=True, allow_nan=False).removesuffix("}")
    text = f'{body}{", " if values else ""}"{DOCUMENT_KEY}": "{_BLANK_DOCUMENT}"}}\n'
    write_text(path, text.replace(_BLANK_DOCUMENT, _sha256(text)))


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object and verify its checksum, if it has one.

    Raises:
        CorruptFileError: naming the file, if it is damaged or no JSON object.
    """
    try:
        values = parse_json(path.read_bytes().decode("utf-8"))
        if not isinstance(values, dict):
            raise ValueError(f"it holds a {type(values).__name__} instead of a JSON object; write it again")
        return values
    except (ValueError, RecursionError) as error:
        raise CorruptFileError(f"{path} is damaged: {error}") from error


def parse_json(text: str) -> Any:
    """What a text holds, without its checksum, which is verified if there is one.

    >>> parse_json('{"a": 1}')
    {'a': 1}
    """
    values = json.loads(text)
    claimed = _claimed(values, DOCUMENT_KEY) if isinstance(values, dict) else None
    if claimed is not None and _sha256(text.replace(claimed, _BLANK_DOCUMENT)) != claimed:
        raise ValueError(
            'its text does not fit its checksum; write it again, or replace its last line by "}" if you changed it on '
            "purpose"
        )
    return values


def json_line(record: Mapping[str, Any], before: str = "") -> str:
    """A record as one line with its checksum.

    Args:
        record: what JSON can hold, without keys "after" and "crc32".
        before: the line before it, with or without its end; "" for the first line.

    >>> print(json_line({"step": 1}), end="")
    {"step": 1, "after": "00000000", "crc32": "..."}
    """
    line = json.dumps({**record, LINK_KEY: _crc32(before.rstrip("\n")), LINE_KEY: _BLANK_LINE}, allow_nan=False)
    return f'{line[: -len(_BLANK_LINE) - 2]}{_crc32(line)}"}}\n'


class Lines(NamedTuple):
    """What `read_json_lines` found."""

    records: list[dict[str, Any]]
    """The records of sound lines in their places, without their checksums."""
    damaged: list[int]
    """Numbers of the lines, counted from 1, that are damaged or do not follow the line before them."""


def read_json_lines(path: Path) -> Lines:
    """Read records one per line; lines that are damaged or out of place are left out and counted.

    Half a line at the end is what a killed writer leaves: it is left out and is no damage. A line after a damaged one
    is taken as it is, because there is nothing to compare its place with.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path, first = Path(folder, "log.jsonl"), json_line({"step": 1})
    ...     second = json_line({"step": 2}, first)
    ...     third = json_line({"step": 3}, second)
    ...     _ = path.write_text(first + "?" + second + third + '{"st')
    ...     read_json_lines(path)
    Lines(records=[{'step': 1}, {'step': 3}], damaged=[2])
    """
    records, damaged = [], []
    before: str | None = ""  # the line before this one; None if that is damaged
    with open(path, "rb") as file:
        for number, data in enumerate(file, 1):
            try:
                line = data.decode("utf-8")
                record, link = _record(line.removesuffix("\n"))
            except (ValueError, RecursionError):
                if data.endswith(b"\n") or not _HALF_LINE.fullmatch(data):
                    damaged.append(number)
                before = None
                continue
            if link is None or before is None or link == _crc32(before):
                records.append(record)
            else:
                damaged.append(number)
            before = line.removesuffix("\n")
    return Lines(records, damaged)


def last_line(path: Path) -> bytes:
    r"""The last line of a file, read from its end: with its newline if it has one, b"" in an empty file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a").write_bytes(b"one\ntwo\n")
    ...     last_line(Path(folder, "a"))
    b'two\n'
    """
    with open(path, "rb") as file:
        size = end = os.fstat(file.fileno()).st_size
        block, found = 1 << 16, b""
        while end > 0 and found.count(b"\n", 0, -1) == 0:
            start = max(0, size - block)
            file.seek(start)
            found = file.read(size - start)
            end, block = start, 4 * block
    return found[found.rfind(b"\n", 0, -1) + 1 :]


def _record(line: str) -> tuple[dict[str, Any], str | None]:
    """What a sound line holds, and its link to the line before it."""
    values = json.loads(line, object_pairs_hook=_with_shared_keys)
    if not isinstance(values, dict):
        raise ValueError("not a JSON object")
    link = values.pop(LINK_KEY, None) if LINE_KEY in values else None
    claimed = _claimed(values, LINE_KEY)
    if claimed is not None and _crc32(f'{line[: -len(claimed) - 2]}{_BLANK_LINE}"}}') != claimed:
        raise ValueError("the checksum does not fit")
    return values, link


def _with_shared_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object whose keys are the same strings in every record: a third less memory for a long log."""
    return {sys.intern(key): value for key, value in pairs}


def _claimed(values: dict[str, Any], key: str) -> str | None:
    """Take the checksum out; None if there is none. One under another name is a damaged name."""
    for name, value in values.items():
        if name != key and isinstance(value, str) and _HEX[key].fullmatch(value):
            raise ValueError(f"it has a checksum under the name {name!r} instead of {key!r}; write it again")
    if key not in values:
        return None
    claimed = values.pop(key)
    if not isinstance(claimed, str) or not _HEX[key].fullmatch(claimed):
        raise ValueError(f"its checksum {key!r} is not one; write it again")
    return claimed


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _crc32(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"
