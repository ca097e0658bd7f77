"""Artefacts that are measured on finished runs: figures, and tables of more than the scores of a test set."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from varlearn.methods.ensemble_label import line_label
from varlearn.recipes.study_sheet import Sheet
from varlearn.recipes.tables import Line, Table

Values = dict[str, Any]


@dataclass(frozen=True)
class Measured:
    """What a study found in one run.

    Attributes:
        line: whose run it is.
        seed: of the run.
        values: what `Study.measure` returned.
    """

    line: Line
    seed: int
    values: Values


@dataclass(frozen=True)
class Study:
    """An artefact: the runs that it reads, what it measures in each, and how that is shown.

    Attributes:
        table: its name, its title and its runs, as lines; `metrics` is empty.
        measure: from the folder of a finished run to what JSON can hold. It is kept in the run's folder.
        sheet: from what was measured to a table to print.
        draw: writes figures into a folder, from what was measured; None for no figure.
        needs: what the full artefact takes, and how the small scale differs.
        runs: name of the folder of its runs, which studies and tables may share.
    """

    table: Table
    measure: Callable[[Path], Values]
    sheet: Callable[[Sequence[Measured]], Sheet]
    draw: Callable[[Sequence[Measured], Path], Sequence[Path]] | None
    needs: str
    runs: str

    @property
    def name(self) -> str:
        """On the command line."""
        return self.table.name


def by_line(found: Sequence[Measured]) -> dict[str, list[Measured]]:
    """What was measured, by label and detail of the line."""
    groups: dict[str, list[Measured]] = {}
    for one in found:
        name = " ".join(word for word in (line_label(one.line.method), one.line.detail) if word)
        groups.setdefault(name, []).append(one)
    return groups


def mean_of(values: Sequence[float]) -> float:
    """The mean; NaN of nothing.

    >>> mean_of([1.0, 2.0])
    1.5
    """
    return sum(values) / len(values) if values else float("nan")


def table_of(name: str, title: str, lines: Sequence[Line], note: str = "") -> Table:
    """The table of a study: lines without metrics."""
    return Table(name, title, (), tuple(lines), note)


def plain(values: Mapping[str, Any]) -> Values:
    """The same with NaN and infinity as words, as JSON wants it."""
    from varlearn.train.evaluate import finite

    return finite(dict(values))


def as_numbers(value: Any) -> Any:
    """What `plain` was given: the words for NaN and infinity are numbers again.

    >>> as_numbers({"nll": "inf", "names": ["a"]})
    {'nll': inf, 'names': ['a']}
    """
    if isinstance(value, dict):
        return {key: as_numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_numbers(item) for item in value]
    return float(value) if value in ("nan", "inf", "-inf") else value
