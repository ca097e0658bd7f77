"""Wrong command lines: each ends with a documented exit code and a message, and trains nothing.

A case joins words of the command line's own vocabulary with wrong values, and calls the command as the process would.
Training, prediction and data are replaced, so what remains is everything between the words and the first step.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

from soak.isolated import isolated
from soak.part import Outcome, Part, chance
from soak.scratch import scratch
from varlearn import cli

CODES = {0, 1, 2, 3}
_COMMANDS = ("train", "predict", "score", "report", "reproduce", "list", "--help", "--version", "trian", "", "-")
_FLAGS = (
    "--out", "--scale", "--seed", "--resume", "--config", "--logger", "--device", "--quiet", "--debug", "--optim.lr",
    "--optim.name", "--optim.ess", "--data.subset", "--data.ood", "--data.validation", "--model.hidden", "--model.name",
    "--train.epochs", "--train.steps", "--train.precision", "--evaluate.samples", "--seeds", "--models", "--optim.lrr",
    "--no-data.augment", "--data.augment", "--", "--optim", "--=", "--train.schedule", "-h",
)  # fmt: skip
_VALUES = (
    "0", "1", "-1", "1e999", "nan", "none", "", " ", "x" * 300, "ivon", "sgd", "small", "paper", "digits-ivon",
    "table1", "9" * 400, "0.5", "true", "[1]", "{}", "\0", "ä", "\udcff", "/dev/null", "runs/x", "..", "cuda:99",
    "1,2", "--seed", "$(touch owned)", "; touch owned", "%s", "cifar10", "gone.toml", "folder.json", "$\\frac{",
)  # fmt: skip


def words(random: Random) -> list[str]:
    """A command line of up to eight words."""
    chosen = [random.choice(_COMMANDS) if random.random() < 0.3 else "train"]
    for _ in range(random.randrange(8)):
        chosen.append(random.choice(_FLAGS if random.random() < 0.5 else _VALUES))
    if random.random() < 0.3 and len(chosen) > 1:
        chosen[1] = "digits-ivon"
    return chosen


def cases(numbers: range, seed: int) -> Iterator[Outcome]:
    """The words follow from number and seed."""
    with scratch() as folder, contextlib.chdir(folder) if hasattr(contextlib, "chdir") else _moved(folder):
        Path("folder.json").mkdir()
        with mock.patch("varlearn.train.fit", _nothing), mock.patch("varlearn.train.predict_run", _nothing):
            for number in numbers:
                line = words(chance(seed, number))
                fault = _fault(line, folder)
                yield Outcome(line[0] or "none", not fault, f"number {number}: {line}: {fault}" if fault else "")


def _fault(line: list[str], folder: Path) -> str:
    said, failures = io.StringIO(), []
    plain = cli._words

    def watched(error: BaseException) -> str:
        failures.append(error)
        return plain(error)

    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(said),
        mock.patch.object(cli, "_words", watched),
    ):
        try:
            code = cli.main(line)
        except BaseException as error:
            return f"{type(error).__name__}: {error}"
    if code not in CODES:
        return f"exit code {code}"
    if code and not any(text.startswith("varlearn: ") and len(text) > 15 for text in said.getvalue().splitlines()):
        return f"exit code {code} without a message"
    if failures and type(failures[0]) in (KeyError, IndexError, AttributeError, AssertionError, RecursionError):
        return f"bare {type(failures[0]).__name__}: {failures[0]}"
    return "a command was executed" if (folder / "owned").exists() else ""


def _nothing(*_: Any, **__: Any) -> None:
    raise ValueError("the campaign trains nothing; this is the end of a valid command line")


@contextlib.contextmanager
def _moved(folder: Path) -> Iterator[None]:
    """`contextlib.chdir` of Python 3.11."""
    import os

    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


PART = Part(
    "arguments",
    "No command line ends without a documented exit code and a message",
    "command lines",
    short=1_000,
    full=100_000,
    cases=isolated(cases),
)
