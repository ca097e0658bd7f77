"""Contenders take turns, so that whatever else the machine does, it does to all of them alike."""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

Turn = Callable[[], object]


class Budget(NamedTuple):
    """How long to measure.

    Attributes:
        rounds: at most so many; in each, every contender has one turn.
        seconds: no new round after this time, once `least` rounds are done.
        least: rounds that are done in any case.
        repeat: calls in one turn. Above 1 where a call takes a few milliseconds.
        warmup: calls before the first round (state is allocated, kernels are compiled).
    """

    rounds: int
    seconds: float
    least: int = 3
    repeat: int = 1
    warmup: int = 2


QUICK = Budget(rounds=2, seconds=5.0, least=2, warmup=1)  # enough to see that figures come out


class Timings:
    """Seconds per call of each contender, one number per round.

    Ratios are taken within a round and only then summarized: a slow minute of the machine slows both sides of them.
    """

    def __init__(self, seconds: Mapping[str, list[float]]) -> None:
        self.seconds = dict(seconds)

    @classmethod
    def pooled(cls, parts: Sequence[Mapping[str, list[float]]]) -> Timings:
        """The rounds of several measurements of the same contenders."""
        return cls({name: [second for part in parts for second in part[name]] for name in parts[0]})

    @property
    def rounds(self) -> int:
        return len(next(iter(self.seconds.values())))

    def least_ms(self, name: str) -> float:
        return 1e3 * min(self.seconds[name])

    def median_ms(self, name: str) -> float:
        return 1e3 * statistics.median(self.seconds[name])

    def ratio(self, name: str, to: str) -> float:
        """Median over the rounds of `name`'s time over that of `to`."""
        return statistics.median(self._ratios(name, to))

    def quartiles(self, name: str, to: str) -> tuple[float, float]:
        """Lower and upper quartile of the ratios whose median `ratio` is."""
        ratios = self._ratios(name, to)
        if len(ratios) < 2:
            return ratios[0], ratios[0]
        low, _, high = statistics.quantiles(ratios, n=4, method="inclusive")
        return low, high

    def _ratios(self, name: str, to: str) -> list[float]:
        return [own / other for own, other in zip(self.seconds[name], self.seconds[to], strict=True)]


def take_turns(turns: Mapping[str, Turn], budget: Budget, clock: Callable[[], float] = time.perf_counter) -> Timings:
    """Time every turn once per round, in an order that changes from round to round.

    Garbage is collected between rounds, not within turns.

    Args:
        turns: what is timed, by name.
        budget: how often.
        clock: seconds; `time.process_time` leaves out what other processes take of the core.
    """
    for turn in turns.values():
        for _ in range(budget.warmup):
            turn()
    order = list(turns)
    shuffle = random.Random(0).shuffle
    seconds: dict[str, list[float]] = {name: [] for name in turns}
    collecting = gc.isenabled()
    deadline = time.perf_counter() + budget.seconds
    try:
        for done in range(budget.rounds):
            if done >= budget.least and time.perf_counter() > deadline:
                break
            gc.collect()
            gc.disable()
            shuffle(order)
            for name in order:
                seconds[name].append(_time(turns[name], budget.repeat, clock))
    finally:
        if collecting:
            gc.enable()
    return Timings(seconds)


def _time(turn: Turn, repeat: int, clock: Callable[[], float]) -> float:
    start = clock()
    for _ in range(repeat):
        turn()
    return (clock() - start) / repeat
