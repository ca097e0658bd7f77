"""What every part of the benchmarks consists of."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from benchmarks.results import Figure
from benchmarks.tables import Column


class Part(NamedTuple):
    """One question, its measurement and its tables.

    Attributes:
        name: of its JSON file, and of the option that asks for it.
        title: what is measured, in a line.
        columns: of the tables; each case is a table of its own.
        measure: (quick) -> figures. `quick` takes tiny sizes and few rounds: it shows that everything runs, no more.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    measure: Callable[[bool], list[Figure]]
