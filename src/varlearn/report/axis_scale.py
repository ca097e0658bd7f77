"""Axes of a figure: from values to pixels, and the numbers written beside them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

MINUS = "\u2212"


def short(value: float, digits: int = 3) -> str:
    """A number for people: few digits, thousands apart, no exponent where it can be avoided.

    >>> [short(value) for value in (0.07812, 1234567, 12.0, 0.00001234, -0.5)]
    ['0.0781', '1,234,567', '12', '1.23e-05', '−0.5']
    """
    if not math.isfinite(value):
        return str(value)
    sign, size = (MINUS if value < 0 else ""), abs(value)
    if size >= 10 ** (digits - 1):
        return f"{sign}{size:,.0f}"
    return f"{sign}{size:.{digits}g}"


@dataclass(frozen=True)
class Axis:
    """One axis.

    Attributes:
        title: what it shows, with its unit.
        low: value at its beginning.
        high: value at its end; larger than `low`.
        log: whether it is logarithmic; both ends are then positive.
        named: ticks with names, in place of computed ones.

    >>> axis = Axis("step", 0.0, 100.0)
    >>> axis.place(50.0), axis.ticks()
    (0.5, [(0.0, '0'), (25.0, '25'), (50.0, '50'), (75.0, '75'), (100.0, '100')])
    """

    title: str
    low: float
    high: float
    log: bool = False
    named: tuple[tuple[float, str], ...] = ()

    def place(self, value: float) -> float:
        """Where a value is on the axis: 0 at the beginning, 1 at the end."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def holds(self, value: float) -> bool:
        """Whether a value has a place on the axis, apart from round-off."""
        return math.isfinite(value) and (not self.log or value > 0) and -0.001 <= self.place(value) <= 1.001

    def ticks(self, count: int = 4) -> list[tuple[float, str]]:
        """Values with their names: round numbers; on a logarithmic axis powers of ten and parts of them.

        Args:
            count: how many steps, about.
        """
        if self.named:
            return list(self.named[:: 1 if count > 2 else -(-len(self.named) // 4)])
        if self.log:
            return _log_ticks(self.low, self.high, count)
        step = _round_step((self.high - self.low) / count)
        first = math.ceil(self.low / step - 1e-9)
        values = [k * step for k in range(first, math.floor(self.high / step + 1e-9) + 1)]
        decimals = next(digits for digits in range(20) if digits == 19 or abs(step - round(step, digits)) < 1e-9 * step)
        return [(value, f"{value:,.{decimals}f}".replace("-", MINUS)) for value in values]


def fitted(
    title: str,
    values: Iterable[float],
    *,
    log: bool = False,
    low: float | None = None,
    high: float | None = None,
    span: float = 0.0,
) -> Axis:
    """The axis that holds all finite values.

    Args:
        title: of the axis.
        values: that it must hold.
        log: make it logarithmic if all values are positive and span more than a factor of ten.
        low: its beginning; None for the smallest value, with a margin.
        high: its end; None for the largest value, with a margin.
        span: least length of the axis, as a share of the largest value: noise should look like noise.

    >>> fitted("loss", [0.01, 3.0], log=True).log, fitted("loss", [1.0, 3.0], log=True).log
    (True, False)
    """
    known = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    if log and min(known) > 0 and max(known) > 10 * min(known):
        return Axis(title, low or min(known) / 1.15, high or max(known) * 1.15, log=True)
    least, most = min(known) if low is None else low, max(known) if high is None else high
    missing = span * max(abs(least), abs(most)) - (most - least)
    if missing > 0:
        least, most = least - missing / 2, most + missing / 2
    margin = 0.05 * (most - least) or 0.05 * abs(most) or 0.5
    return Axis(title, least - margin * (low is None), most + margin * (high is None))


def _round_step(rough: float) -> float:
    """The smallest of 1, 2, 2.5, 5 times a power of ten that is not below `rough`."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1.0, 2.0, 2.5, 5.0, 10.0) if factor * power >= rough * (1 - 1e-9))


def _log_ticks(low: float, high: float, count: int) -> list[tuple[float, str]]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    decades = math.log10(high / low)
    parts = (1.0, 2.0, 5.0) if decades < 1.5 else (1.0, 3.0) if decades < 2.5 else (1.0,)
    every = max(1, round(decades / (count + 1)))
    values = [part * 10.0**power for power in range(first, last + 1, every) for part in parts]
    return [(value, f"{value:g}") for value in values if low * 0.999 <= value <= high * 1.001]
