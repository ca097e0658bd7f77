"""Files with a right checksum and a wrong content: every reader returns a value, or names the file and the fault.

A case takes a valid file, changes its content in up to three places, seals it again, and reads it. It breaks the
promise if the reader raises anything but its documented errors, if the message does not name the file, if anything is
executed, imported or written meanwhile, or if it takes more than two seconds of
computing or 256 MiB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from soak.file_kinds import KINDS
from soak.hostile_files import hostile_document, hostile_lines, hostile_sealed, hostile_toml
from soak.isolated import isolated
from soak.part import Outcome, Part, chance
from soak.scratch import scratch
from soak.watch import peak, watched
from varlearn import posterior
from varlearn.cli.overrides import laid_over, read_settings
from varlearn.files import sealed
from varlearn.files.formats import CorruptFileError, FileFormatError
from varlearn.report.run_results import read_run
from varlearn.train import Run, RunFolderError

SECONDS, MIB = 2.0, 256.0
_VARIANTS = 4


class Reader(NamedTuple):
    """A function that reads files of others.

    Attributes:
        name: as the campaign counts it.
        kind: of the valid file that a case changes, a name of `KINDS`.
        make: (valid bytes, random numbers) -> hostile bytes.
        read: (path) the function.
        errors: what it may raise.
        file: name of the file; that of the kind if "".
        names_file: whether messages must name the file; those about settings name the setting.
    """

    name: str
    kind: str
    make: Callable[[bytes, Random], bytes]
    read: Callable[[Path], Any]
    errors: tuple[type[Exception], ...] = (CorruptFileError, FileFormatError, RunFolderError)
    file: str = ""
    names_file: bool = True


def _used_posterior(path: Path) -> None:
    found = posterior.load(path)
    repr(found)
    found.sample(seed=0)


def _settings(path: Path) -> Run:
    return laid_over(Run(), read_settings(path))


def _report(path: Path) -> Any:
    return read_run(path.parent)


_LOADS = {kind.name: kind.load for kind in KINDS}
READERS = (
    Reader("checkpoint", "checkpoint", hostile_sealed, _LOADS["checkpoint"]),
    Reader("posterior", "posterior", hostile_sealed, _used_posterior),
    Reader("predictions", "predictions", hostile_sealed, _LOADS["predictions"]),
    Reader("sealed file", "predictions", hostile_sealed, sealed.read),
    Reader("config", "config", hostile_document, _LOADS["config"]),
    Reader("metrics", "metrics", hostile_document, _LOADS["metrics"]),
    Reader("log", "log", hostile_lines, _LOADS["log"]),
    Reader("settings, JSON", "config", hostile_document, _settings, (ValueError,), "settings.json", False),
    Reader("settings, TOML", "config", hostile_toml, _settings, (ValueError,), "settings.toml", False),
)
REPORT_READERS = (  # they take turns
    Reader("report", "config", hostile_document, _report),
    Reader("report", "metrics", hostile_document, _report),
    Reader("report", "log", hostile_lines, _report),
    Reader("report", "predictions", hostile_sealed, _report),
)


def cases(numbers: range, seed: int) -> Iterator[Outcome]:
    """The reader follows from the number, the file from number and seed."""
    with scratch() as folder:
        valid = {
            kind.name: [_written(folder / kind.file, kind, variant) for variant in range(_VARIANTS)] for kind in KINDS
        }
        for reader in (*READERS, *REPORT_READERS):
            _judged(reader, folder, valid[reader.kind][0], 0.0)  # imports what is imported late
        before = peak()
        for number in numbers:
            turn, place = divmod(number, len(READERS) + 1)
            reader = READERS[place] if place < len(READERS) else REPORT_READERS[turn % len(REPORT_READERS)]
            random = chance(seed, number)
            content = reader.make(random.choice(valid[reader.kind]), random)
            yield _judged(reader, folder, content, before, f"number {number}: ")


def _judged(reader: Reader, folder: Path, content: bytes, memory: float, prefix: str = "") -> Outcome:
    kind = next(kind for kind in KINDS if kind.name == reader.kind)
    path = folder / (reader.file or kind.file)
    before = path.read_bytes() if path.exists() else None
    path.write_bytes(content)
    fault = ""
    with watched(memory) as seen:
        try:
            reader.read(path)
        except reader.errors as error:
            if reader.names_file and str(path) not in str(error):
                fault = f"the message does not name the file: {str(error)[:200]}"
        except Exception as error:
            fault = f"{type(error).__name__}: {str(error)[:200]}"
    if before is not None:
        path.write_bytes(before)
    if seen.executed:
        fault = f"executed {seen.executed[0]}"
    elif memory and (seen.measured["seconds"] > SECONDS or seen.measured["MiB"] > MIB):
        fault = f"took {seen.measured['seconds']:.2f} s, {seen.measured['MiB']:.0f} MiB more than before"
    return Outcome(reader.name, not fault, prefix + fault if fault else "", seen.measured)


def _written(path: Path, kind: Any, variant: int) -> bytes:
    kind.write(path, variant)
    return path.read_bytes()


PART = Part(
    "fuzz",
    "No file makes a reader crash, hang, take more than 256 MiB, or execute anything; errors name the file",
    "files",
    short=4_000,
    full=100_000 * (len(READERS) + 1),
    cases=isolated(cases),
)
