"""The examples that a run learns from, and those that it is measured on meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

from torch import Tensor

from varlearn.data.examples import Examples
from varlearn.data.held_out import kept_numbers
from varlearn.metrics import input_shift
from varlearn.train.build import build_examples, build_training
from varlearn.train.config import Run
from varlearn.train.processes import Processes

_COMPARED = 1_000  # examples of each split


class Splits(NamedTuple):
    """What training needs of a data set."""

    train: Examples
    """To learn from."""
    measured: Examples
    """To measure on while training."""
    name: Literal["validation", "test"]
    """The split that `measured` is. Test examples are measured, and nothing is chosen by them."""
    input_shift: float | None = None
    """Distance of the test inputs from the training inputs; None for texts."""
    numbers: Tensor | None = None
    """Of the training examples, before some were held out; None where none were."""


def build_splits(run: Run, mine: Processes, root: Path | None = None) -> Splits:
    """The splits of a run; process 0 comes first, so that it alone downloads.

    >>> import torch
    >>> from varlearn.train.config import Data
    >>> alone = Processes(0, 1, torch.device("cpu"))
    >>> [build_splits(Run(data=Data("digits", validation=share)), alone).name for share in (0, 0.1)]
    ['test', 'validation']
    """
    splits = None
    with mine.together():
        if mine.writes:
            splits = _splits(run, root)
    return splits or _splits(run, root)


def _splits(run: Run, root: Path | None) -> Splits:
    train, validation = build_training(run, root)
    test = build_examples(run, "test", root)  # always: missing test data should stop a run before it is trained
    shift = _input_shift(train, test)
    if validation is None:
        return Splits(train, test, "test", shift)
    return Splits(train, validation, "validation", shift, training_numbers(run, len(train) + len(validation), train))


def training_numbers(run: Run, n: int, train: Examples) -> Tensor | None:
    """The numbers of the training examples before some were held out; None where they are 0, 1, 2 and so on.

    Args:
        run: `data.validation` is read.
        n: examples before that.
        train: those that are left.
    """
    return None if train.kind == "tokens" or not run.data.validation else kept_numbers(n, run.data.validation)


def _input_shift(train: Examples, test: Examples) -> float | None:
    """Of up to a thousand or two evenly spaced examples of each."""
    parts = []
    for examples in (train, test):
        if examples.kind not in ("image", "table") or not isinstance(examples.inputs, Tensor) or len(examples) < 2:
            return None
        parts.append(examples.inputs[:: max(1, len(examples) // _COMPARED)])
    return input_shift(*parts) if parts[0].shape[1:] == parts[1].shape[1:] else None
