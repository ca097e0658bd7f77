"""Small files that claim much: 10^12 elements, 10^6 keys, JSON of a million levels.

Each case is one reader and one bomb, in a process of its own. It breaks the promise if the reader raises anything but
its documented errors, executes anything, or takes more than `SECONDS` of computing or `MIB` and `PER_BYTE` bytes of
memory for each byte of the file.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from soak.file_kinds import KINDS
from soak.fuzz import READERS, REPORT_READERS, Reader
from soak.hostile_files import hostile_document, hostile_lines, hostile_toml
from soak.isolated import isolated
from soak.part import Outcome, Part
from soak.scratch import scratch
from soak.sealing import put_together, sealed_document, taken_apart
from soak.watch import peak, watched
from varlearn.files.checked_json import json_line

SECONDS, MIB, PER_BYTE = 60.0, 64.0, 64.0
_LONGEST = 600.0  # on a busy machine, before a case counts as hanging
KEYS = DEEP = DIGITS = 1_000_000

Bomb = Callable[[bytes], bytes]


def _tensor(shape: list[int], end: int, dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [0, end]}


def _with_tensor(described: dict[str, Any]) -> Bomb:
    """The first tensor claims to be another one."""

    def make(good: bytes) -> bytes:
        header, metadata, tensors = taken_apart(good)
        return put_together({**header, next(iter(header)): described}, metadata, tensors)

    return make


def _many_tensors(good: bytes) -> bytes:
    header, metadata, tensors = taken_apart(good)
    end = len(tensors)
    empty = {"dtype": "F32", "shape": [0], "data_offsets": [end, end]}
    return put_together(header | {f"t{number}": empty for number in range(KEYS)}, metadata, tensors)


def _many_settings(good: bytes) -> bytes:
    header, metadata, tensors = taken_apart(good)
    return put_together(header, metadata | {f"k{number}": 0 for number in range(KEYS)}, tensors)


def _deep_settings(good: bytes) -> bytes:
    header, metadata, tensors = taken_apart(good)
    marked = put_together(header, metadata | {"deep": "DEEP"}, tensors)
    return marked.replace(b'\\"DEEP\\"', b"[" * DEEP + b"]" * DEEP)  # the checksum is not looked at before it is parsed


def _deep_header(good: bytes) -> bytes:
    head = b'{"a":' * DEEP + b"0" + b"}" * DEEP
    return struct.pack("<Q", len(head)) + head


def _long_header(good: bytes) -> bytes:
    return struct.pack("<Q", 2**63) + good[8:]


SEALED: dict[str, Bomb] = {
    "10^12 elements": _with_tensor(_tensor([10**12], 4 * 10**12)),
    "10^12 elements without data": _with_tensor(_tensor([10**12], 0)),
    "a product of sizes beyond 2^64": _with_tensor(_tensor([2**33, 2**33], 0)),
    "sizes beyond 2^64": _with_tensor(_tensor([2**70], 4)),
    "10^6 dimensions": lambda good: _with_tensor(_tensor([1] * KEYS, 4))(good),
    "10^6 tensors": _many_tensors,
    "10^6 settings": _many_settings,
    "deep settings": _deep_settings,
    "a deep header": _deep_header,
    "a header of 2^63 bytes": _long_header,
}


def _document_with(value: Callable[[], Any]) -> Bomb:
    def make(good: bytes) -> bytes:
        values = json.loads(good)
        del values["sha256"]
        return sealed_document(values | value())

    return make


DOCUMENTS: dict[str, Bomb] = {
    "10^6 keys": _document_with(lambda: {f"k{number}": 0 for number in range(KEYS)}),
    "10^6 keys inside": _document_with(lambda: {"mean": {f"k{number}": 0 for number in range(KEYS)}}),
    "deep lists": lambda good: b'{"a": ' + b"[" * DEEP + b"]" * DEEP + b"}",
    "deep objects": lambda good: b'{"a":' * DEEP + b"0" + b"}" * DEEP,
    "levels that never close": lambda good: b"[" * DEEP,
    "a number of 10^6 digits": lambda good: b'{"seed": ' + b"9" * DIGITS + b"}",
    "a number with a huge exponent": lambda good: b'{"seed": 1e' + b"9" * DIGITS + b"}",
    "a long text": _document_with(lambda: {"name": "x" * 10 * DIGITS}),
}

LINES: dict[str, Bomb] = {
    "10^6 keys": lambda good: good + json_line({f"k{number}": 0 for number in range(KEYS)}).encode(),
    "deep lists": lambda good: good + b'{"a": ' + b"[" * DEEP + b"]" * DEEP + b"}\n",
    "a number of 10^6 digits": lambda good: good + b'{"step": ' + b"9" * DIGITS + b"}\n",
    "a long text": lambda good: good + json_line({"name": "x" * 10 * DIGITS}).encode(),
    "one endless line": lambda good: good + b"x" * 10 * DIGITS,
    "10^6 empty lines": lambda good: good + b"\n" * KEYS,
}

TOML: dict[str, Bomb] = {
    "10^6 keys": lambda good: b"".join(b"k%d = 0\n" % number for number in range(KEYS)),
    "10^5 tables": lambda good: b"".join(b"[t%d]\n" % number for number in range(KEYS // 10)),
    "deep lists": lambda good: b"a = " + b"[" * DEEP + b"]" * DEEP,
    "deep tables": lambda good: b"a = " + b"{a=" * DEEP + b"0" + b"}" * DEEP,
    "a deep key": lambda good: b"a." * DEEP + b"a = 0",
    "a deep quoted key": lambda good: b'"a b" . ' * (DEEP // 100) + b"a = 0",
    "a number of 10^6 digits": lambda good: b"seed = " + b"9" * DIGITS,
}

_BOMBS = {hostile_document: DOCUMENTS, hostile_lines: LINES, hostile_toml: TOML}


def all_cases() -> list[tuple[Reader, str, Bomb]]:
    """Every reader with every bomb of its kind of file."""
    readers = (*READERS, *REPORT_READERS)
    return [(each, name, bomb) for each in readers for name, bomb in _BOMBS.get(each.make, SEALED).items()]


def cases(numbers: range, seed: int) -> Iterator[Outcome]:
    """Each number is a reader and a bomb, in a process of its own: memory is counted from its start."""
    for number in numbers[: max(0, len(all_cases()) - numbers.start)]:
        yield from isolated(_in_this_process, longest=_LONGEST)(range(number, number + 1), seed)


def _in_this_process(numbers: range, seed: int) -> Iterator[Outcome]:
    reader, name, bomb = all_cases()[numbers.start]
    kind = next(kind for kind in KINDS if kind.name == reader.kind)
    with scratch() as folder:
        for each in KINDS:
            each.write(folder / each.file, 0)
        path = folder / (reader.file or kind.file)
        path.write_bytes((folder / kind.file).read_bytes() if reader.file else path.read_bytes())
        _tried(reader, path)  # imports what is imported late
        content = bomb((folder / kind.file).read_bytes())
        path.write_bytes(content)
        size = len(content)
        del content
        before = peak()
        with watched(before) as seen:
            fault = _tried(reader, path)
    if seen.executed:
        fault = f"executed {seen.executed[0]}"
    seconds, used = seen.measured["seconds"], seen.measured["MiB"]
    if not fault and (seconds > SECONDS or used > MIB + PER_BYTE * size / 2**20):
        fault = f"took {seconds:.1f} s and {used:.0f} MiB for {size / 2**20:.1f} MiB"
    measured = {"seconds": seconds, "bytes per byte of the file": max(0.0, used - MIB) * 2**20 / size}
    yield Outcome(reader.name, not fault, f"{name}: {fault}" if fault else "", measured)


def _tried(reader: Reader, path: Path) -> str:
    """What is wrong with how the file is read: an error that is not documented, or one that does not name the file."""
    try:
        reader.read(path)
    except reader.errors as error:
        if reader.names_file and str(path) not in str(error):
            return f"the message does not name the file: {str(error)[:200]}"
        return "" if len(str(error)) < 10_000 else f"a message of {len(str(error))} characters"
    except BaseException as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    return ""


PART = Part(
    "bombs",
    "A file that claims 10^12 elements, 10^6 keys or 10^6 levels costs at most 60 s and 64 MiB + 64 bytes per byte",
    "readers and files",
    short=len(all_cases()),
    full=len(all_cases()),
    cases=cases,
)
