"""What the command line prints: tables and lines that fit a terminal, a pipe, and a screen of 40 columns."""

from __future__ import annotations

import os
import statistics
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from varlearn.advice import Finding

WIDE = 160  # columns of an output without a width: a pipe or a file


class Screen(Console):
    """The standard output, in colour if it is a terminal that wants some. Rich's own exits when the pipe is closed."""

    def on_broken_pipe(self) -> None:
        """Leave it to `main`."""
        raise BrokenPipeError


def console() -> Console:
    """Where results go."""
    known = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Screen(highlight=False, soft_wrap=False, width=None if known else WIDE)


def say(words: str) -> None:
    """A remark beside the results, on the standard error."""
    print(words, file=sys.stderr, flush=True)


def show_findings(found: Iterable[Finding]) -> None:
    """Print advice about a run on the standard error, a paragraph for each finding."""
    width = min(console().width, 100)
    for finding in found:
        say(textwrap.fill(str(finding), width, initial_indent="", subsequent_indent="  "))


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, title: str = "", numbers: int = 0) -> None:
    """Print a table; where it is wider than the screen, each row as several lines.

    Args:
        columns: their names.
        rows: cells of each row.
        title: above the table.
        numbers: how many columns at the right hold numbers; they are aligned to the right.
    """
    rows, out = list(rows), console()
    widths = [max(len(row[place]) for row in [columns, *rows]) for place in range(len(columns))]
    if sum(widths) + 3 * len(widths) > out.width:
        _records(out, columns, rows, title)
        return
    if title:  # not the table's own, which is folded to its width
        out.print(f"[bold]{escape(title)}[/bold]")
    made = Table(box=SIMPLE_HEAD, pad_edge=False)
    for place, name in enumerate(columns):
        right = place >= len(columns) - numbers
        made.add_column(name, justify="right" if right else "left", overflow="fold")
    for row in rows:
        made.add_row(*row)
    out.print(made)


def settings(sections: dict[str, Any]) -> None:
    """Print nested settings, a section to a paragraph.

    Args:
        sections: name -> value, or name -> settings by name.
    """
    out = console()
    alone = {name: value for name, value in sections.items() if not isinstance(value, dict)}
    parts = {name: values for name, values in sections.items() if isinstance(values, dict)}
    for name, values in {"run": alone, **parts}.items():
        cells = [f"{key}={_value(value)}" for key, value in values.items()]
        out.print(f"[bold]{name}[/bold] " + escape("  ".join(cells)))


def _records(out: Console, columns: Sequence[str], rows: Sequence[Sequence[str]], title: str) -> None:
    out.print(f"\n[bold]{escape(title)}[/bold]" if title else "")
    for row in rows:
        cells = [f"{name} {cell}" if name else cell for name, cell in zip(columns, row, strict=True) if cell]
        out.print(escape("\n  ".join(cells)))


def _value(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else "none" if value is None else str(value)


def spread(values: Sequence[float], digits: int) -> str:
    """Mean and standard deviation; the mean alone of a single value.

    >>> spread([1.0, 3.0], 1), spread([2.0], 2), spread([], 2)
    ('2.0 ± 1.4', '2.00', '–')
    """
    if not values:
        return "–"
    mean = f"{statistics.fmean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.{digits}f}"
