"""A table to print, of words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Sheet:
    """A table to print: title, columns, cells, and how many columns at the right hold numbers."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: int
