"""`report.html`: one page that needs nothing but a browser. Everything that is not written here is escaped."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from varlearn.report.page_style import STYLE


@dataclass(frozen=True)
class Section:
    """A part of the page: its heading, and its HTML. A section without HTML is left out."""

    heading: str
    html: str


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes:
        text: what it says.
        spread: behind it in smaller letters, e.g. a standard deviation.
        best: whether it is marked as the best of its column.
        bar: a share of 1 that a bar shows below it; None for no bar.
        color: number of a colour: of the bar, or of a line before the text.
        dash: pattern of that line.
    """

    text: str
    spread: str = ""
    best: bool = False
    bar: float | None = None
    color: int | None = None
    dash: int = 0


def page(title: str, note: str, verdict: str, sections: Iterable[Section], footer: str = "") -> str:
    """The whole page.

    Args:
        title: of the page.
        note: a line below it.
        verdict: HTML of the first part.
        sections: the others.
        footer: a line at the end.

    >>> "<h1>a &lt; b</h1>" in page("a < b", "", "", [])
    True
    """
    shown = [(f"part{number}", section) for number, section in enumerate(sections) if section.html]
    links = "".join(f'<li><a href="#{name}">{escape(section.heading)}</a></li>' for name, section in shown)
    body = "\n".join(
        f'<section aria-labelledby="{name}"><h2 id="{name}">{escape(section.heading)}</h2>\n{section.html}\n</section>'
        for name, section in shown
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<link rel="icon" href="data:,">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f'<a class="skip" href="#content">Skip to the results</a>\n<header>\n<h1>{escape(title)}</h1>\n'
        f'<p class="note">{escape(note)}</p>\n</header>\n<main id="content">\n{verdict}\n'
        f'<nav aria-label="Parts of the page"><ul>{links}</ul></nav>\n{body}\n</main>\n'
        f"<footer>{escape(footer)}</footer>\n</body>\n</html>\n"
    )


def figure(title: str, body: str, caption: str, *, legend: str = "", width: str = "", numbers: str = "") -> str:
    """A figure with its title above and its caption below.

    Args:
        title: of the figure.
        body: HTML of the drawing, which includes its text alternative.
        caption: how to read it.
        legend: HTML, see `legend`.
        width: "all" for the whole width of the page, "double" for two columns.
        numbers: HTML of a table with its main numbers, folded.
    """
    kind = f' class="{width}"' if width else ""
    folded = f"<details><summary>Numbers of this figure</summary>{numbers}</details>" if numbers else ""
    return (
        f"<figure{kind}>\n<h3>{escape(title)}</h3>\n{legend}{body}\n"
        f"<figcaption>{escape(caption)}</figcaption>{folded}\n</figure>"
    )


def figures(drawn: Iterable[str]) -> str:
    """Figures side by side, as many as fit; nothing if there are none."""
    parts = [one for one in drawn if one]
    narrow = sum(one.startswith("<figure>") for one in parts)
    columns = " two" if narrow in (2, 4) else ""
    return f'<div class="figures{columns}">\n' + "\n".join(parts) + "\n</div>" if parts else ""


def legend(entries: Sequence[tuple[str, int | None, int]]) -> str:
    """Which line is which: (name, colour, dash) each; nothing for less than two.

    >>> legend([("IVON", 0, 0)])
    ''
    """
    if len(entries) < 2:
        return ""
    return '<ul class="legend">' + "".join(f"<li>{key(*entry)}</li>" for entry in entries) + "</ul>\n"


def key(name: str, color: int | None, dash: int) -> str:
    """A name behind a piece of its line."""
    pattern = f" d{dash}" if dash else ""
    shade = "soft" if color is None else f"c{color}"
    return f'<span class="key {shade}{pattern}"></span>{escape(name)}'


def table(columns: Sequence[str], rows: Sequence[Sequence[Cell | str]], caption: str, *, words: int = 1) -> str:
    """A table that scrolls by itself where it is wider than the page.

    Args:
        columns: their names.
        rows: cells; the first of each row is its heading.
        caption: above it.
        words: how many columns at the left hold words; the others hold numbers.

    >>> '<span class="best">0.2<' in table(["method", "NLL"], [["IVON", Cell("0.2", best=True)]], "on the test set")
    True
    """

    def line(cells: Sequence[Cell | str], head: bool) -> str:
        filled = []
        for place, cell in enumerate(cells):
            tag = "th" if head or place == 0 else "td"
            scope = f' scope="{"col" if head else "row"}"' if tag == "th" else ""
            kind = "" if place < words else ' class="number"'
            filled.append(f"<{tag}{scope}{kind}>{_cell(cell, bar=place >= words)}</{tag}>")
        return f"<tr>{''.join(filled)}</tr>"

    body = "".join(line(row, False) for row in rows)
    return (
        f'<div class="wide" role="region" tabindex="0" aria-label="{escape(caption)}"><table>'
        f"<caption>{escape(caption)}</caption><thead>{line(columns, True)}</thead><tbody>{body}</tbody></table></div>"
    )


def folded(values: Mapping[str, Mapping[str, Any]]) -> str:
    """JSON to fold out, under a name each."""
    parts = []
    for name, value in values.items():
        text = escape(json.dumps(value, indent=2, sort_keys=True))
        parts.append(f"<details><summary>{escape(name)}</summary><pre>{text}</pre></details>")
    return "\n".join(parts)


def _cell(cell: Cell | str, *, bar: bool) -> str:
    if isinstance(cell, str):
        return escape(cell)
    text = escape(cell.text)
    if cell.best:
        text = f'<span class="best">{text}<span class="hidden"> (best)</span></span>'
    if cell.spread:
        text += f' <span class="spread">{escape(cell.spread)}</span>'
    if cell.color is not None and not bar:
        text = f'<span class="keyed">{key("", cell.color, cell.dash)}<span>{text}</span></span>'
    if cell.bar is not None:
        text += f'<span class="bar c{cell.color}" style="width:{100 * cell.bar:.0f}%"></span>'
    return text
