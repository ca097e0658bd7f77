"""Faults at every point of every write: the old file or the whole new one is there afterwards, and it loads.

Each kind of file is written over an old one, and where there is none, with one fault at a time:

- error: the system refuses (disk full, I/O error, read-only) at one line of the writing code;
- short write: the file may not grow beyond so many bytes, so the system writes a part and refuses the rest;
- crash: the process ends at one line, without any cleanup, so before and after each fsync and rename;
- crash in a write: the process ends when so many bytes of the file are written.

The points are all lines of the writing code that a write executes, and up to 40 lengths of the file. After an error no
temporary file may be left. After a crash one may be; `remove_orphans`, which a run calls when it starts, must find it.
"""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError

import varlearn
from soak.isolated import isolated
from soak.part import Outcome, Part
from soak.same import same
from soak.scratch import scratch
from soak.written_files import WRITTEN, Written
from varlearn.files.atomic import remove_orphans

MODES = ("error", "short write", "crash", "crash in a write")
LENGTHS = 40
_ERRORS = (errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT)
_PACKAGE = Path(varlearn.__file__).parent
_CODE = tuple(
    map(
        str,
        (
            _PACKAGE / "files",
            _PACKAGE / "train" / "log.py",
            _PACKAGE / "train" / "checkpoint.py",
            _PACKAGE / "report" / "style.py",
        ),
    )
)  # what writes files


class Case(NamedTuple):
    """One fault: at the `point`-th line, or when the file has `point` bytes."""

    written: Written
    mode: str
    replaces: bool
    point: int


def cases(numbers: range, seed: int) -> Iterator[Outcome]:
    """All faults in order; the seed is not used."""
    with scratch() as folder:
        for case in list(_all(folder))[numbers.start : numbers.stop]:
            place = folder / "case"
            shutil.rmtree(place, ignore_errors=True)
            fault = _fault(case, place)
            where = f"{case.written.name}, {case.mode}"
            kept = f"point {case.point}, {'over an old file' if case.replaces else 'new'}: {fault}"
            yield Outcome(where, not fault, kept if fault else "")


def _all(folder: Path) -> Iterator[Case]:
    for written in WRITTEN:
        place = folder / written.name
        written.write(place, 0)
        lines, size = _lines(lambda place=place, written=written: written.write(place, 1)), _largest(place)
        lengths = sorted({round(size * part / LENGTHS) for part in range(LENGTHS)})
        shutil.rmtree(place)
        for mode in MODES:
            for replaces in (True, False):
                for point in lengths if "write" in mode else range(lines):
                    yield Case(written, mode, replaces, point)


def _fault(case: Case, place: Path) -> str:
    """Write with the fault; returns what is wrong afterwards."""
    written = case.written
    allowed = []
    if case.replaces:
        written.write(place, 0)
        allowed.append(written.load(place))
    else:
        place.mkdir()
    kept_files = {path for path in place.rglob("*") if path.is_file()}
    child = os.fork()
    if child == 0:
        os._exit(_attempt(case, place))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    crashed = case.mode.startswith("crash")
    if code not in ((0, _CRASHED, -signal.SIGXFSZ) if crashed else (0, _REFUSED)):
        return f"the writer ended with {code}"
    extra = {path for path in place.rglob("*") if path.is_file()} - kept_files - written.files(place)
    orphans = {path for folder in {place, *(path.parent for path in extra)} for path in remove_orphans(folder)}
    if extra - orphans:
        return f"{min(extra - orphans).name} is left and not recognised as temporary"
    if orphans and not crashed:
        return f"{min(orphans).name} is left"
    return _wrong_content(written, place, allowed)


def _wrong_content(written: Written, place: Path, allowed: list[Any]) -> str:
    if not any(path.exists() for path in written.files(place)):
        return "the old file is gone" if allowed else ""
    try:
        found = written.load(place)
    except Exception as error:
        return f"what is there does not load: {type(error).__name__}: {str(error)[:150]}"
    written.write(place, 1)  # the next attempt succeeds
    new = written.load(place)
    if not any(same(found, value) for value in [*allowed, new, *written.partly]):
        return "what is there is neither the old nor the new content"
    return ""


_REFUSED, _CRASHED = 7, 9


def _attempt(case: Case, place: Path) -> int:
    """In a child process: write with the fault, and return an exit code."""
    try:
        if "write" in case.mode:
            if case.mode.startswith("crash"):
                signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
                resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_FSIZE, (case.point, resource.RLIM_INFINITY))
            case.written.write(place, 1)
        else:
            _at_line(lambda: case.written.write(place, 1), case.point, crash=case.mode == "crash")
    except (OSError, SafetensorError):
        return _REFUSED
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        return 1
    return 0


def _lines(work: Callable[[], object]) -> int:
    """How many lines of the writing code the work executes."""
    count = 0

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.startswith(_CODE):
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def _at_line(work: Callable[[], object], point: int, *, crash: bool) -> None:
    """Do the work, but crash or raise at the `point`-th line of the writing code."""
    count = 0

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.startswith(_CODE):
            return None
        if event == "line":
            count += 1
            if count == point + 1:
                sys.settrace(None)
                if crash:
                    os._exit(_CRASHED)
                number = _ERRORS[point % len(_ERRORS)]
                raise OSError(number, os.strerror(number))
        return trace

    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(None)


def _largest(place: Path) -> int:
    return max(path.stat().st_size for path in place.rglob("*") if path.is_file())


PART = Part(
    "faults",
    "After an error, a short write or a crash at any point of a write, the old or the whole new file is there",
    "faults",
    short=100_000,  # all of them
    full=100_000,
    cases=isolated(cases),
)
