"""Tables of figures, as plain text for the terminal and as Markdown for the documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Column(NamedTuple):
    """One column of a part's tables.

    Attributes:
        key: of the figure.
        title: the heading.
        form: format of the number.
        is_main: whether this is what two runs are compared by.
    """

    key: str
    title: str
    form: str = ".2f"
    is_main: bool = False

    def show(self, value: str | int | float) -> str:
        """The number as it is printed."""
        return value if isinstance(value, str) else format(value, self.form)


def cells(figures: Sequence[Mapping[str, str | int | float]], columns: Sequence[Column]) -> list[list[str]]:
    """Heading and rows; a figure that lacks a column has a dash there."""
    used = [column for column in columns if any(column.key in figure for figure in figures)]
    rows = [[column.show(figure[column.key]) if column.key in figure else "–" for column in used] for figure in figures]
    return [[column.title for column in used], *rows]


def as_text(grid: Sequence[Sequence[str]]) -> str:
    """Aligned columns, the first to the left and the others to the right."""
    widths = [max(len(row[i]) for row in grid) for i in range(len(grid[0]))]
    lines = [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in grid
    ]
    return "\n".join(line.rstrip() for line in lines)


def as_markdown(grid: Sequence[Sequence[str]]) -> str:
    """A Markdown table, the first column to the left and the others to the right."""
    rule = ["---", *["---:"] * (len(grid[0]) - 1)]
    return "\n".join("| " + " | ".join(row) + " |" for row in [grid[0], rule, *grid[1:]])


def by_case(figures: Sequence[Mapping[str, str | int | float]]) -> dict[str, list[Mapping[str, str | int | float]]]:
    """Figures under their case, in the order in which cases appear."""
    cases: dict[str, list[Mapping[str, str | int | float]]] = {}
    for figure in figures:
        cases.setdefault(str(figure["case"]), []).append(figure)
    return cases
