"""Damaged files: no reader returns other values than the ones that were written.

A case takes a valid file of some kind, damages it in one of six ways, and reads it. The reader must raise one of the
library's documented errors, or return exactly what was written. The reader of a log must return what was written or
name damaged lines. A log that was cut off at its end is one of a run that was killed: there the length tells that the
checkpoint remembers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from soak.file_kinds import KINDS, FileKind
from soak.part import Outcome, Part, chance
from soak.same import same
from soak.scratch import scratch
from varlearn.files.checked_json import Lines
from varlearn.files.formats import CorruptFileError, FileFormatError
from varlearn.train import RunFolderError

WAYS = ("flip", "truncate", "zero", "swap", "splice", "exchange")
ERRORS = (CorruptFileError, FileFormatError, RunFolderError)
_VARIANTS = 4


def cases(numbers: range, seed: int) -> Iterator[Outcome]:
    """Kind and way follow from the number, the place of the damage from number and seed."""
    with scratch() as folder:
        written = {kind.name: _examples(kind, folder) for kind in KINDS}
        for number in numbers:
            random = chance(seed, number)
            kind, way = KINDS[number % len(KINDS)], WAYS[number // len(KINDS) % len(WAYS)]
            good, value = random.choice(written[kind.name])
            bad = damaged(good, way, random, kind, written)
            path = folder / kind.file
            path.write_bytes(bad)
            valid = [data for data, _ in written[kind.name]]  # a splice may be all of one file and nothing of another
            kept, detail = (True, "") if bad in valid else judged(kind, path, value, len(good))
            yield Outcome(f"{kind.name}, {way}", kept, f"number {number}: {detail}" if detail else "")


def damaged(
    good: bytes, way: str, random: Random, kind: FileKind, written: dict[str, list[tuple[bytes, Any]]]
) -> bytes:
    """The file with one damage."""
    size = len(good)
    first, last = sorted(random.randrange(size + 1) for _ in range(2))
    match way:
        case "flip":
            bits = [random.randrange(8 * size) for _ in range(random.choice((1, 1, 2, 8)))]
            out = bytearray(good)
            for bit in bits:
                out[bit // 8] ^= 1 << bit % 8
            return bytes(out)
        case "truncate":
            return good[:first]
        case "zero":
            return good[:first] + bytes(last - first) + good[last:]
        case "swap":  # two blocks, or two lines, change places
            separator = b"\n" if random.random() < 0.5 else None
            blocks = good.split(b"\n") if separator else [good[:first], good[first:last], good[last:]]
            one, other = random.randrange(len(blocks)), random.randrange(len(blocks))
            blocks[one], blocks[other] = blocks[other], blocks[one]
            return (separator or b"").join(blocks)
        case "splice":  # the beginning of one valid file, the end of another
            other, _ = random.choice(written[kind.name])
            if random.random() < 0.5:
                return good[:first] + other[first:]
            head, tail = good.splitlines(keepends=True), other.splitlines(keepends=True)
            return b"".join(head[: random.randrange(len(head) + 1)] + tail[random.randrange(len(tail) + 1) :])
        case _:  # a valid file of another kind
            return random.choice(written[random.choice([name for name in written if name != kind.name])])[0]


def judged(kind: FileKind, path: Path, value: Any, size: int) -> tuple[bool, str]:
    """Whether the damage was noticed, and if not, what happened instead."""
    try:
        found = kind.load(path)
    except ERRORS as error:
        return (True, "") if str(error) else (False, "an error without a message")
    except Exception as error:
        return False, f"{type(error).__name__}: {error}"
    if same(found, value):
        return True, ""
    if isinstance(found, Lines) and (found.damaged or path.stat().st_size < size):
        return True, ""
    return False, "read without an error, with other values"


def _examples(kind: FileKind, folder: Path) -> list[tuple[bytes, Any]]:
    """The bytes and the value of each variant of a kind."""
    made, path = [], folder / kind.file
    for variant in range(_VARIANTS):
        kind.write(path, variant)
        made.append((path.read_bytes(), kind.load(path)))
        path.unlink()
    return made


PART = Part(
    "damage",
    "No damaged file is read as if it were whole: flipped, cut, zeroed, swapped, spliced or exchanged",
    "damaged files",
    short=6_000,
    full=36_000,
    cases=cases,
)
