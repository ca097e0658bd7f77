"""Runs tests in forks of a process that has imported what they need, except the package under test.

`python -m soak.fork_server` reads one JSON request per line, {"tests": [node ids], "seconds": limit}, and answers each
with one line, {"code": pytest's exit code or None after the time limit, "failed": the first test that failed}. The
limit is of processor time: a busy machine fails no test. Tests that use none for a minute wait for ever and are ended.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import resource
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import pytest

PRELOADED = (
    "numpy", "scipy.stats", "torch", "torch.distributed", "torch.distributed.checkpoint.state_dict",
    "torch.distributed.fsdp", "torch.nn.parallel", "torch.multiprocessing", "torch.utils.data", "hypothesis.strategies",
    "safetensors.torch", "sklearn.metrics", "torchmetrics", "_pytest.doctest",
)  # fmt: skip
_PRELOADED_TOO = "ignore:Module already imported:pytest.PytestAssertRewriteWarning"
NO_LIMIT = ("-o", "faulthandler_timeout=0")  # of the suite, which ends tests of 300 s
_IDLE = 60.0  # seconds
FAILED, OUTPUT = Path("first_failure.txt"), Path("pytest_output.txt")


class Chosen:
    """A pytest plugin that runs the given tests, file by file, and notes the first failure.

    A test without its parameters stands for all its cases.
    """

    def __init__(self, tests: list[str]) -> None:
        files = list(dict.fromkeys(test.split("::")[0] for test in tests))
        self._order = {test: (files.index(test.split("::")[0]), number) for number, test in enumerate(tests)}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        places = ((self._order.get(item.nodeid, self._order.get(item.nodeid.split("[")[0])), item) for item in items)
        items[:] = [
            item for _, item in sorted((each for each in places if each[0] is not None), key=lambda each: each[0])
        ]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not FAILED.exists():
            FAILED.write_text(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and not FAILED.exists():
            FAILED.write_text(f"import of {report.nodeid}")


class ForkServer:
    """Starts the server in a tree of sources and asks it to run tests.

    Args:
        tree: its working directory.
        environment: of the process.
    """

    def __init__(self, tree: Path, environment: dict[str, str]) -> None:
        self._tree = tree
        self._process = subprocess.Popen(
            [sys.executable, "-m", "soak.fork_server"], cwd=tree, env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def run(self, tests: list[str], seconds: float) -> dict[str, Any]:
        """Run tests until the first one fails."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"tests": tests, "seconds": seconds}) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the process that runs the tests ended with code {self._process.wait()}")
        return json.loads(answer)

    def output(self) -> str:
        """What pytest printed in the last fork."""
        return (self._tree / OUTPUT).read_text(errors="replace")

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def _run_tests(tests: list[str], seconds: float) -> None:
    """In the fork: run the tests and exit with pytest's code."""
    code = 3  # pytest's code for an internal error
    try:
        os.setsid()
        limit = math.ceil(seconds)
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
        output = os.open(OUTPUT, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        for stream in range(3):
            os.dup2(output, stream)
        files = list(dict.fromkeys(test.split("::")[0] for test in tests))
        options = ["-x", "-q", "--tb=no", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", _PRELOADED_TOO, *NO_LIMIT]
        code = int(pytest.main([*files, *options], plugins=[Chosen(tests)]))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _wait(process: int) -> int | None:
    """The exit code of a fork, or None if it used more processor time than allowed, or none for a minute."""
    used, since = -1, time.monotonic()
    while time.monotonic() - since < _IDLE:
        done, status = os.waitpid(process, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return None if code in (-signal.SIGXCPU, -signal.SIGKILL) else code
        if (now := _ticks(process)) != used:
            used, since = now, time.monotonic()
        time.sleep(0.01)
    os.killpg(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return None


def _ticks(process: int) -> int:
    """The processor time of a process in the system's unit; where /proc does not say, any other number."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return time.monotonic_ns()
    return int(fields[11]) + int(fields[12])  # in user mode, and in the system


def main() -> None:
    """Answer requests until the input ends."""
    for name in PRELOADED:
        importlib.import_module(name)
    assert not any(name.partition(".")[0] == "varlearn" for name in sys.modules)
    for line in sys.stdin:
        request = json.loads(line)
        FAILED.unlink(missing_ok=True)
        process = os.fork()
        if process == 0:
            _run_tests(request["tests"], request["seconds"])
        code = _wait(process)
        failed = FAILED.read_text() if FAILED.exists() else ""
        print(json.dumps({"code": code, "failed": failed}), flush=True)


if __name__ == "__main__":
    main()
