"""Ctrl-C at every place where Python looks for signals, in blocks, steps and modes, for every engine.

The combinations of engine, memory mode, dtype and action are those of tests/optim/test_interrupts.py. A case interrupts
one combination at every 37th place. Each case begins at another place, so 37 cases visit every place once.
"""

from __future__ import annotations

from collections.abc import Iterator

from soak.part import Outcome, Part
from tests.optim.test_interrupts import COMBINATIONS, DTYPES, sweep

_STRIDE = 37


def cases(numbers: range, seed: int) -> Iterator[Outcome]:
    """The combinations one after the other, then again from the next place."""
    for number in numbers[: max(0, _STRIDE * len(COMBINATIONS) - numbers.start)]:
        round_number, which = divmod(number, len(COMBINATIONS))
        engine, memory, dtype, action = COMBINATIONS[which]
        broken = sweep(
            engine, memory, DTYPES[dtype], action, first=1 + (round_number + which) % _STRIDE, stride=_STRIDE
        )
        detail = f"{engine}, {memory}, {dtype}, {action}: {'; '.join(broken[:3])}"
        yield Outcome(f"{engine}, {memory}", not broken, detail if broken else "")


PART = Part(
    name="interrupts",
    promise="After Ctrl-C in a block, a step or a mode the weights are the old or the new mean, and training goes on",
    unit="sweeps (1 of 37 places of an action)",
    short=len(COMBINATIONS),
    full=_STRIDE * len(COMBINATIONS),
    cases=cases,
)
