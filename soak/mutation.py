"""Mutation testing: small changes of core, optim, posterior and metrics must make a test fail.

Each mutant is written into a copy of the project. The tests that run the changed line are run there, in a fork of a
process that has already imported torch. A mutant is killed when a test fails or exceeds its time limit. First a few
cases of each test are run; what survives them is tried with all cases for a minute, where only a failure kills.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from soak import covering_tests
from soak.fork_server import ForkServer
from soak.mutants import Mutant, sample
from soak.part import Outcome, Part
from soak.results import REPO

CACHE = REPO / "runs" / "soak"
_COPIED = ("src", "tests", "docs", "examples", "benchmarks", "soak", "tools", "pyproject.toml", "README.md", "Makefile")
_FIRST = 12  # tests in the first fork; most mutants are killed there
_RUNNER_FAILED = (3, 4, 5)  # pytest's codes for an internal error, a wrong call, and no tests
_SECONDS = 60.0 + 6.0 * covering_tests.SECONDS
_ALL_CASES_SECONDS = 60.0  # of processor time, for a survivor's tests with all their parameters


def cases(numbers: range, seed: int) -> Iterator[Outcome]:
    """Each number is a mutant of the random order that the seed decides."""
    chosen = sample(REPO, numbers.stop, seed)[numbers.start :]
    with tempfile.TemporaryDirectory() as folder:
        tree = copied_tree(Path(folder))
        environment = environment_of(tree)
        covering = covering_tests.load(tree, CACHE, environment)
        server = ForkServer(tree, environment)
        try:
            for mutant in chosen:
                yield judge(tree, server, mutant, covering_tests.choose(covering, mutant))
        finally:
            server.close()


def copied_tree(folder: Path) -> Path:
    """A copy of what the tests need, in which mutants are written."""
    tree = folder.resolve() / "tree"
    tree.mkdir()
    for name in _COPIED:
        source = REPO / name
        if source.is_dir():
            shutil.copytree(source, tree / name, ignore=shutil.ignore_patterns("__pycache__", "results"))
        else:
            shutil.copy(source, tree / name)
    return tree


def environment_of(tree: Path) -> dict[str, str]:
    """One thread, the same Hypothesis examples each time, and caches of its own."""
    own = {
        "PYTHONPATH": f"{tree}/src:{tree}",
        "XDG_CACHE_HOME": f"{tree.parent}/cache",
        "TMPDIR": str(tree.parent),
        "CI": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "ONEDNN_MAX_CPU_ISA": os.environ.get("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16"),
    }
    return {name: value for name, value in os.environ.items() if name != "VARLEARN_DATA"} | own


def judge(tree: Path, server: ForkServer, mutant: Mutant, tests: list[str]) -> Outcome:
    """Whether the tests notice a mutant."""
    kind = mutant.path.split("/")[2]
    where = f"{mutant.path}:{mutant.line}: {mutant.what}"
    with written(tree, mutant):
        if any(batch and fail(server, batch) for batch in (tests[:_FIRST], tests[_FIRST:])):
            return Outcome(kind)
        if tests and server.run(covering_tests.with_all_cases(tests), _ALL_CASES_SECONDS)["code"] == 1:
            return Outcome(kind)
    return Outcome(kind, kept=False, detail=f"{where} ({len(tests)} tests pass)")


def fail(server: ForkServer, tests: list[str]) -> bool:
    """Whether one of the tests fails, hangs, crashes or cannot be imported."""
    code = server.run(tests, _SECONDS)["code"]
    if code in _RUNNER_FAILED:
        raise RuntimeError(f"pytest ended with code {code}: {server.output()[-2000:]}")
    return code != 0


@contextmanager
def written(tree: Path, mutant: Mutant) -> Iterator[None]:
    """The mutant is in its file inside the block."""
    path = tree / mutant.path
    source = path.read_text(encoding="utf-8")
    try:
        _write(path, mutant.apply(source))
        yield
    finally:
        _write(path, source)


def _write(path: Path, source: str) -> None:
    """Write a module, and remove its compiled form: Python compares times in whole seconds only."""
    path.write_text(source, encoding="utf-8")
    for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
        compiled.unlink()


PART = Part(
    name="mutants",
    promise="A small change of core, optim, posterior or metrics makes a test fail",
    unit="mutants",
    short=40,
    full=400,
    cases=cases,
    share=0.95,
)
