"""One piece of advice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """What was found in a run.

    Attributes:
        code: a fixed name for programs, e.g. "no_schedule".
        severity: "error": the result is not usable. "warning": it is worse than it need be. "note": good to know.
        sentence: what was found, with the number.
        cause: why it matters, or what usually causes it.
        change: the one change to make.

    >>> found = Finding("x", "note", "lr was 0.1.", "A constant rate ends noisy.", "Use a cosine schedule.")
    >>> print(found)
    note: lr was 0.1. A constant rate ends noisy. Use a cosine schedule.
    """

    code: str
    severity: Severity
    sentence: str
    cause: str
    change: str

    def __str__(self) -> str:
        return f"{self.severity}: {self.sentence} {self.cause} {self.change}"
