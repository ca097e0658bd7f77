"""How long a user waits: for the import, for help, for a message about a wrong flag, for a training's first line."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from benchmarks.part import Part
from benchmarks.results import REPO, Figure
from benchmarks.tables import Column
from benchmarks.timing import QUICK, Budget, take_turns

_PYTHON = "python -c pass"
_COMMANDS = {
    _PYTHON: ["-c", "pass"],
    "import varlearn": ["-c", "import varlearn"],
    "import torch": ["-c", "import torch"],
    "varlearn --help": ["-m", "varlearn", "--help"],
    "varlearn train --help": ["-m", "varlearn", "train", "--help"],
    "varlearn list": ["-m", "varlearn", "list"],
    "varlearn train digits-ivon --optim.lrr 1 (wrong flag)": [
        "-m",
        "varlearn",
        "train",
        "digits-ivon",
        "--optim.lrr",
        "1",
    ],
}
_TRAIN = "varlearn train digits-ivon, first line"


def measure(quick: bool) -> list[Figure]:
    """Each in a process of its own, in turns."""
    turns = {name: partial(_run, words) for name, words in _COMMANDS.items()} | {_TRAIN: _first_line}
    timings = take_turns(turns, QUICK if quick else Budget(rounds=20, seconds=120.0, least=5, warmup=1))
    return [
        {
            "case": "from the shell",
            "contender": name,
            "rounds": timings.rounds,
            "least_ms": timings.least_ms(name),
            "median_ms": timings.median_ms(name),
            "over_python_ms": timings.median_ms(name) - timings.median_ms(_PYTHON),
        }
        for name in turns
    ]


def _run(words: list[str]) -> None:
    subprocess.run([sys.executable, *words], cwd=REPO, capture_output=True, check=False)


def _first_line() -> None:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "varlearn", "train", "digits-ivon", "--out", str(Path(folder) / "run")]
        with subprocess.Popen(
            command, cwd=REPO, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as running:
            assert running.stdout is not None
            line = running.stdout.readline()
            running.kill()
    if not line.strip():
        raise RuntimeError(f"{' '.join(command[1:])} printed nothing")


PART = Part(
    name="start",
    title="how long a command takes to answer",
    columns=(
        Column("contender", "what"),
        Column("least_ms", "ms, least"),
        Column("median_ms", "ms, median", is_main=True),
        Column("over_python_ms", "ms more than Python alone"),
        Column("rounds", "rounds", "d"),
    ),
    measure=measure,
)
