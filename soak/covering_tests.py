"""Which tests run which line: a mutant is tried with these tests only.

`python -m soak.covering_tests OUT` runs the tests and doctests of the mutated components once, with a tracer, and
writes {"lines": {path: {line: [test, ...]}}, "files": {path: [test, ...]}}. Of a test with many parameters, a few cases
are run.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Generator, Iterable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from soak.fork_server import NO_LIMIT
from soak.mutants import COMPONENTS, Mutant

SECONDS = 60.0  # of tests for one mutant
CASES = 4  # of a test with parameters
# The tracer does not see what several processes run, and makes the interpreter of kernels many times slower.
_LEFT_OUT = ("tests/optim/ranks", "tests/optim/engine/triton")

Covering = dict[str, dict[str, Any]]


class Recorder:
    """A pytest plugin that records the lines and the duration of each test."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._folders = tuple(f"{root}/src/varlearn/{component}/" for component in COMPONENTS)
        self._seen: set[tuple[str, int]] = set()
        self.lines: dict[tuple[str, int], list[str]] = defaultdict(list)
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()

    @pytest.hookimpl(trylast=True)  # after marks have deselected tests
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        tests: dict[str, list[pytest.Item]] = defaultdict(list)
        for item in items:
            tests[item.nodeid.split("[")[0]].append(item)
        chosen = {item.nodeid for cases in tests.values() for item in cases[:: -(-len(cases) // CASES)]}
        items[:] = [item for item in items if item.nodeid in chosen]

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, None]:
        self._seen.clear()
        began = time.process_time()
        threading.settrace(self._enter)
        sys.settrace(self._enter)
        try:
            yield
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]
        self.seconds[item.nodeid] = time.process_time() - began
        for place in self._seen:
            self.lines[place].append(item.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)

    def _enter(self, frame: FrameType, event: str, _: object) -> Any:
        return self._line if frame.f_code.co_filename.startswith(self._folders) else None

    def _line(self, frame: FrameType, event: str, _: object) -> Any:
        if event == "line":
            self._seen.add((frame.f_code.co_filename, frame.f_lineno))
        return self._line

    def covering(self) -> Covering:
        """For each line and each file, the tests to try, most promising first."""
        lines: dict[str, dict[int, list[str]]] = defaultdict(dict)
        files: dict[str, set[str]] = defaultdict(set)
        for (name, line), tests in self.lines.items():
            path = str(Path(name).relative_to(self._root))
            passed = [test for test in tests if test not in self.failed]
            lines[path][line] = self._ordered(path, passed)
            files[path].update(passed)
        every = {str(path.relative_to(self._root)) for folder in self._folders for path in Path(folder).rglob("*.py")}
        return {"lines": lines, "files": {path: self._ordered(path, files[path]) for path in sorted(every)}}

    def _ordered(self, path: str, tests: Iterable[str]) -> list[str]:
        """The module's own tests first, then one case of every test, then the second cases, and so on."""
        turns: dict[str, itertools.count[int]] = defaultdict(itertools.count)
        ranked = []
        for test in sorted(tests, key=lambda each: (self.seconds[each], each)):
            own = test.startswith((f"{path}::", _own_tests(path)))
            ranked.append((not own, next(turns[test.split("[")[0]]), self.seconds[test], test))
        chosen, total = [], 0.0
        for _, _, seconds, test in sorted(ranked):
            total += seconds
            if total > SECONDS:
                break
            chosen.append(test)
        return chosen


def _own_tests(path: str) -> str:
    """Where the tests of a module are.

    >>> _own_tests("src/varlearn/core/update.py")
    'tests/core/test_update.py::'
    """
    folder, _, name = path.removeprefix("src/varlearn/").rpartition("/")
    return f"tests/{folder}/test_{name}::"


def choose(covering: Covering, mutant: Mutant) -> list[str]:
    """The tests for a mutant: those of its line, or those of its file where the line runs at import."""
    lines = covering["lines"].get(mutant.path, {})
    found = [*lines.get(str(mutant.line), []), *lines.get(str(mutant.statement), [])]
    return list(dict.fromkeys(found or covering["files"].get(mutant.path, [])))


def with_all_cases(tests: Iterable[str]) -> list[str]:
    """The same tests with all their parameters.

    >>> with_all_cases(["tests/a.py::test_b[1]", "tests/a.py::test_b[2]", "tests/a.py::test_c"])
    ['tests/a.py::test_b', 'tests/a.py::test_c']
    """
    return list(dict.fromkeys(test.split("[")[0] for test in tests))


def load(tree: Path, cache: Path, environment: dict[str, str]) -> Covering:
    """The tests of each line, from the cache unless sources or tests have changed."""
    path = cache / f"covering_tests-{_fingerprint(tree)}.json"
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "soak.covering_tests", str(path)]
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
        if not path.exists():
            raise RuntimeError(f"the tests of each line could not be found: {(done.stdout + done.stderr)[-2000:]}")
    return json.loads(path.read_text(encoding="utf-8"))


def _fingerprint(tree: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(path for folder in _folders() for path in (tree / folder).rglob("*.py")):
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _folders() -> list[str]:
    return [*(f"tests/{each}" for each in COMPONENTS), *(f"src/varlearn/{each}" for each in COMPONENTS)]


def main(out: Path) -> None:
    """Run the tests and write the file."""
    recorder = Recorder(Path.cwd().resolve())
    ignored = [f"--ignore={folder}" for folder in _LEFT_OUT]
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", *NO_LIMIT]
    code = pytest.main([*_folders(), *ignored, *options], plugins=[recorder])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):  # interrupted: what is recorded is not all
        sys.exit(int(code))
    unfinished = out.with_suffix(".tmp")
    unfinished.write_text(json.dumps(recorder.covering()), encoding="utf-8")
    os.replace(unfinished, out)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
