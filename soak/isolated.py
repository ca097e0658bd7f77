"""Run cases in a child process, so that a crash or a hang breaks one case and not the campaign."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import BinaryIO

from soak.part import Cases, Outcome

LONGEST = 60.0  # seconds that a case may take


def isolated(cases: Cases, longest: float = LONGEST) -> Cases:
    """The same cases, run in a forked process; one that kills its process or takes too long is broken."""

    def run(numbers: range, seed: int) -> Iterator[Outcome]:
        left = numbers
        while left:
            child, pipe = _fork(cases, left, seed)
            with pipe:
                count = 0
                for outcome in _outcomes(pipe, longest):
                    count += 1
                    yield outcome
            code = _end(child)
            if code == 0:
                return
            left = left[count:]
            reason = f"took more than {longest:g} s" if code == -signal.SIGKILL else f"ended its process with {code}"
            yield Outcome("crash or hang", False, f"number {left[0] if left else numbers[-1]}, seed {seed}: {reason}")
            left = left[1:]

    return run


def _fork(cases: Cases, numbers: range, seed: int) -> tuple[int, BinaryIO]:
    read, write = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child:
        os.close(write)
        return child, open(read, "rb")
    code = 1
    try:
        os.close(read)
        with open(write, "wb") as pipe:
            for outcome in cases(numbers, seed):
                pipe.write(json.dumps(asdict(outcome)).encode() + b"\n")
                pipe.flush()
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
    finally:
        sys.stderr.flush()
        os._exit(code)


def _outcomes(pipe: BinaryIO, longest: float) -> Iterator[Outcome]:
    """What the child writes, until it ends or is silent for too long."""
    rest = b""
    while select.select([pipe], [], [], longest)[0]:
        data = os.read(pipe.fileno(), 1 << 16)
        if not data:
            return
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            yield Outcome(**json.loads(line))


def _end(child: int) -> int:
    """The exit code of a child that has closed its pipe; one that has not is killed."""
    done, status = os.waitpid(child, os.WNOHANG)
    if not done:
        try:
            status = _wait(child, 1.0)
        except TimeoutError:
            os.kill(child, signal.SIGKILL)
            status = os.waitpid(child, 0)[1]
    return os.waitstatus_to_exitcode(status)


def _wait(child: int, seconds: float) -> int:
    import time

    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        time.sleep(0.005)
    raise TimeoutError
