"""Schedules of lambda: cold at first, the evidence lower bound at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from varlearn.optim.prior_widths import passes_of

Schedule = Callable[[float], float]


def annealed(n: float, cold: float = 100.0, passes: float = 10.0) -> Schedule:
    """lambda as a function of the passes over the data: from cold * n to n, geometrically, over the first `passes`.

    >>> schedule = annealed(1000)
    >>> schedule(0.0), schedule(5.0), schedule(20.0)
    (100000.0, 10000.0, 1000.0)
    """
    return lambda done: float(n) * max(1.0, cold ** (1.0 - done / passes))


def annealing_law(group: Mapping[str, Any]) -> tuple[float, float, float]:
    """(start, ratio, end) of a parameter group: after t steps lambda is max(end, start ratio^t).

    >>> start, ratio, end = annealing_law({"n": 50.0, "batch_size": 10, "steps": 100})
    >>> start, round(start * ratio**50, 6), end
    (50000.0, 1581.13883, 50.0)
    """
    n, passes = float(group["n"]), passes_of(group)
    cold, passes = (100.0, 10.0) if passes is None else (1000.0, passes)
    return n * cold, cold ** (-float(group["batch_size"]) / (n * passes)), n


def annealed_over_run(group: Mapping[str, Any]) -> Schedule:
    """The schedule of a parameter group: over the whole run where it knows its number of steps.

    >>> annealed_over_run({"n": 50.0, "batch_size": 10, "steps": 100})(20.0)  # after 20 passes
    50.0
    """
    passes = passes_of(group)
    return annealed(float(group["n"])) if passes is None else annealed(float(group["n"]), 1000.0, passes)
