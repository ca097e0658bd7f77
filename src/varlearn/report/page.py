"""`report.html`: one page that needs nothing but a browser."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

STYLE = """
:root { color-scheme: light dark; --back: #ffffff; --ink: #1d2126; --soft: #667080; --line: #dfe3e8; --panel: #f6f7f9; }
@media (prefers-color-scheme: dark) {
  :root { --back: #15181c; --ink: #e6e9ed; --soft: #99a3b0; --line: #2f353d; --panel: #1c2026; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 68rem; padding: 1.5rem 1.25rem 4rem; background: var(--back); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2.2rem 0 .6rem; }
p.note, figcaption, caption { color: var(--soft); }
figure { margin: 0; padding: .75rem; background: var(--panel); border: 1px solid var(--line); border-radius: 6px; }
figure svg { width: 100%; height: auto; display: block; }
figcaption { font-size: .87rem; margin-top: .5rem; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); gap: 1rem;
  align-items: start; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-size: .87rem; padding-bottom: .3rem; }
th, td { padding: .3rem .9rem .3rem 0; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
td.number, th.number { text-align: right; }
details { margin-top: .6rem; }
summary { cursor: pointer; }
pre { background: var(--panel); border: 1px solid var(--line); border-radius: 6px; padding: .75rem; overflow-x: auto;
  font: 12.5px/1.45 ui-monospace, monospace; }
"""


@dataclass(frozen=True)
class Drawn:
    """A figure on the page: its SVG, and what to see in it."""

    svg: str
    caption: str


def page(title: str, note: str, sections: Iterable[tuple[str, str]]) -> str:
    """The whole page.

    Args:
        title: of the page.
        note: a line below it.
        sections: (heading, HTML).

    >>> "<h1>a &lt; b</h1>" in page("a < b", "", [])
    True
    """
    body = "\n".join(f"<section>\n<h2>{escape(heading)}</h2>\n{html}\n</section>" for heading, html in sections)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f'<h1>{escape(title)}</h1>\n<p class="note">{escape(note)}</p>\n{body}\n</body>\n</html>\n'
    )


def figures(drawn: Sequence[Drawn]) -> str:
    """Figures side by side, as many as fit."""
    parts = [f"<figure>{one.svg}<figcaption>{escape(one.caption)}</figcaption></figure>" for one in drawn]
    return '<div class="figures">' + "\n".join(parts) + "</div>"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "", words: int = 1) -> str:
    """A table.

    Args:
        columns: their names.
        rows: cells.
        caption: above it.
        words: how many columns at the left hold words; the others hold numbers.

    >>> table(["metric", "IVON"], [["NLL", "0.2"]])[-77:]
    '<tbody><tr><td>NLL</td><td class="number">0.2</td></tr></tbody></table></div>'
    """

    def line(cells: Sequence[str], tag: str) -> str:
        classes = ["" if place < words else ' class="number"' for place in range(len(cells))]
        filled = "".join(f"<{tag}{c}>{escape(cell)}</{tag}>" for c, cell in zip(classes, cells, strict=True))
        return f"<tr>{filled}</tr>"

    head = f"<caption>{escape(caption)}</caption>" if caption else ""
    body = "".join(line(row, "td") for row in rows)
    return f'<div class="wide"><table>{head}<thead>{line(columns, "th")}</thead><tbody>{body}</tbody></table></div>'


def settings(values: Mapping[str, Mapping[str, Any]]) -> str:
    """JSON to fold out, under a name each."""
    parts = []
    for name, value in values.items():
        text = escape(json.dumps(value, indent=2, sort_keys=True))
        parts.append(f"<details><summary>{escape(name)}</summary><pre>{text}</pre></details>")
    return "\n".join(parts)
