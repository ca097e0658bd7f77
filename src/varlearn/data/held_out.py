"""A validation split for data sets that come without one: a fixed part of the training examples."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from varlearn.data.examples import Examples
from varlearn.data.seeds import generator


def hold_out(examples: Examples, validation: float) -> tuple[Examples, Examples]:
    """Split training examples into those to learn from and those to choose by.

    The validation examples are drawn at random, the same for every run, rank and machine, whatever the run's seed. Both
    parts keep the stored order. Of a text for language modelling they are its end.

    Args:
        examples: a training split.
        validation: how many to hold out: a share below 1, or a whole number of examples (tokens of a text).

    Returns:
        (training examples, validation examples), which have none in common.

    >>> examples = Examples(torch.zeros(10, 1), torch.arange(10.0), (), "table")
    >>> train, validation = hold_out(examples, 0.2)
    >>> len(train), len(validation), set(train.targets.tolist()) & set(validation.targets.tolist())
    (8, 2, set())
    """
    n = len(examples)
    count = validation_size(n, validation)
    if examples.kind == "tokens":
        return examples.first(n - count), replace(examples, inputs=examples.inputs[n - count :])
    kept = kept_numbers(n, validation)
    held_out = torch.ones(n, dtype=torch.bool).index_fill(0, kept, False).nonzero()[:, 0]
    return examples.select(kept), examples.select(held_out)


def kept_numbers(n: int, validation: float) -> Tensor:
    """The numbers, among n examples, of those that `hold_out` leaves to learn from, in ascending order.

    >>> examples = Examples(torch.zeros(10, 1), torch.arange(10.0), (), "table")
    >>> torch.equal(hold_out(examples, 0.2)[0].targets, kept_numbers(10, 0.2).float())
    True
    """
    count = validation_size(n, validation)
    return torch.randperm(n, generator=generator(0, "validation", n))[count:].sort().values


def validation_size(n: int, validation: float) -> int:
    """How many of n examples are held out; at least one is, and at least one is left.

    >>> validation_size(1000, 0.1), validation_size(1000, 250)
    (100, 250)
    >>> validation_size(1000, 0.0001)
    Traceback (most recent call last):
    ...
    ValueError: validation=0.0001 of 1,000 examples is 0 for validation and 1,000 for training; each needs at least 1
    """
    if not validation > 0 or (validation >= 1 and validation != int(validation)):
        raise ValueError(f"validation={validation} must be a share between 0 and 1, or a whole number; 0.1 is usual")
    count = round(validation * n) if validation < 1 else int(validation)
    if not 1 <= count < n:
        raise ValueError(
            f"validation={validation} of {n:,} examples is {count:,} for validation and {max(n - count, 0):,} for "
            "training; each needs at least 1"
        )
    return count
