"""What every part of the campaign consists of: a promise, and a numbered list of cases that try to break it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random


@dataclass(frozen=True)
class Outcome:
    """What one case showed.

    Attributes:
        kind: cases of one kind are counted together, e.g. "flip".
        kept: whether the promise held.
        detail: if it did not, what happened, in one line, with all that is needed to repeat it.
        measured: numbers of which the largest is kept, e.g. {"seconds": 0.2}.
    """

    kind: str
    kept: bool = True
    detail: str = ""
    measured: Mapping[str, float] = field(default_factory=dict)


Cases = Callable[[range, int], Iterator[Outcome]]


@dataclass(frozen=True)
class Part:
    """One promise and how it is tried.

    Attributes:
        name: of its JSON file, and of the option that asks for it.
        promise: what must hold, in one line of the table.
        unit: what is counted, e.g. "kills".
        short: number of cases in `make soak`; 0 leaves the part out.
        full: number of cases in `make soak-full`.
        cases: (numbers, seed) -> one outcome per number, in order. Number and seed alone decide a case, so an
            interrupted part goes on with the numbers that are left. It may end early when there are no more cases.
        share: of the cases, how many must keep the promise.
    """

    name: str
    promise: str
    unit: str
    short: int
    full: int
    cases: Cases
    share: float = 1.0


def chance(seed: int, number: int) -> Random:
    """The random numbers of one case.

    >>> chance(0, 7).random() == chance(0, 7).random()
    True
    """
    return Random(f"{seed}/{number}")
