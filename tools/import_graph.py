"""Draw which part of the package imports which, to `docs/imports.svg` and `docs/imports-optim.svg`: `make graph`.

An arrow points from the importer to what it imports. An arrow that follows from others is left out: if a imports b, and
b imports c, then an arrow from a to c adds nothing. Imports for type checkers alone do not count.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from graphlib import TopologicalSorter
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "varlearn"
DOCS = ROOT / "docs"

Graph = dict[str, set[str]]

COLORS = ("#4c8dd6", "#3aa37c", "#e08b2f", "#c2589b", "#8d7ae0", "#8c8c8c")
BOX, GAP, ROW, MARGIN, TOP = 26, 18, 74, 24, 64  # height of a box, between boxes, between rows, around, for the title
LETTER = 7.1  # width of a letter of 12.5 pixels
STYLE = """text { font: 12.5px system-ui, sans-serif; fill: #1d2126; }
.title { font-size: 16px; font-weight: 600; } .note { fill: #667080; }
.box { fill: #ffffff; stroke-width: 1.5; } .edge { fill: none; stroke: #9aa4b2; stroke-width: 1.1; }
.tip { fill: #9aa4b2; } .back { fill: #ffffff; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6e9ed; } .note { fill: #99a3b0; } .box { fill: #1c2026; } .back { fill: #15181c; }
  .edge { stroke: #5b6675; } .tip { fill: #5b6675; }
}"""


class Picture(NamedTuple):
    """A file of docs/, what it shows, and the color group of each node."""

    name: str
    title: str
    graph: Graph
    group: Callable[[str], str]


def modules() -> dict[str, Path]:
    """Dotted name below varlearn -> file; a package has the name of its folder."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(name: str, path: Path, known: Iterable[str]) -> set[str]:
    """The modules of the package that a file imports, at the top or inside functions."""
    known = set(known)
    names: set[str] = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    hidden = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if id(node) in hidden:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module") and node.args:
            names |= {node.args[0].value} if isinstance(node.args[0], ast.Constant) else set()
    below = {one.removeprefix("varlearn.") for one in names if one.startswith("varlearn.")}
    nearest = {one if one in known else one.rpartition(".")[0] for one in below}
    return {one for one in nearest if one in known and one != name}


def components() -> Graph:
    """The folders and files directly below varlearn."""
    files = modules()
    graph: Graph = defaultdict(set)
    for name, path in files.items():
        if name and path.name != "__main__.py":
            here = name.partition(".")[0]
            graph[here] |= {one.partition(".")[0] for one in imported(name, path, files)} - {here, ""}
    return dict(graph)


def optim_modules() -> Graph:
    """The modules of optim; those that hold nothing but re-exports are left out."""
    files = {name: path for name, path in modules().items() if name.startswith("optim.")}
    files = {name: path for name, path in files.items() if path.name != "__init__.py"}
    everything = modules()
    graph = {}
    for name, path in files.items():
        graph[name.removeprefix("optim.")] = {
            one.removeprefix("optim.") for one in imported(name, path, everything) if one in files
        }
    return graph


def without_cycles(graph: Graph) -> Graph:
    """Drop the arrows that close a circle (an import inside a function may): drawn rows need an order."""
    kept: Graph = {name: set() for name in sorted(graph)}
    for name in sorted(graph):
        for one in sorted(graph[name] & graph.keys()):
            if name not in reachable(kept, one) | {one}:
                kept[name].add(one)
    return kept


def reachable(graph: Graph, start: str) -> set[str]:
    """All that can be reached from a node."""
    seen: set[str] = set()
    todo = [start]
    while todo:
        for one in graph[todo.pop()] - seen:
            seen.add(one)
            todo.append(one)
    return seen


def reduced(graph: Graph) -> Graph:
    """Without the arrows that follow from others."""
    return {
        name: {one for one in ones if not any(one in reachable(graph, other) for other in ones - {one})}
        for name, ones in graph.items()
    }


def levels(graph: Graph) -> dict[str, int]:
    """Node -> row, counted from below; importers are above, as near to what they import as can be."""
    order = list(TopologicalSorter(graph).static_order())
    level: dict[str, int] = {}
    for name in order:
        level[name] = 1 + max((level[one] for one in graph[name]), default=-1)
    for name in reversed(order):  # up, to just below the lowest importer
        users = [user for user in graph if name in graph[user]]
        if users:
            level[name] = max(level[name], min(level[user] for user in users) - 1)
    return level


def with_waypoints(graph: Graph) -> tuple[dict[str, int], dict[str, list[str]]]:
    """Levels of nodes and of waypoints, and the links between neighbouring rows: long arrows lead around boxes.

    A waypoint is named "importer>imported@level".
    """
    level = levels(graph)
    links: dict[str, list[str]] = {name: [] for name in graph}
    for name in sorted(graph):
        for one in sorted(graph[name]):
            steps = [f"{name}>{one}@{row}" for row in range(level[name] - 1, level[one], -1)]
            level |= {step: int(step.rpartition("@")[2]) for step in steps}
            for start, end in zip([name, *steps], [*steps, one], strict=True):
                links.setdefault(start, []).append(end)
    return level, links


def rows_of(level: dict[str, int], links: dict[str, list[str]]) -> list[list[str]]:
    """Rows from the top; in each, nodes stand near those that they are linked to."""
    rows = [sorted(name for name in level if level[name] == one) for one in range(max(level.values()), -1, -1)]
    tied: Graph = defaultdict(set)
    for name, ends in links.items():
        for end in ends:
            tied[name].add(end)
            tied[end].add(name)
    best, fewest = rows, crossings(rows, links)
    for sweep in range(60):
        rows = [list(row) for row in rows]
        place = {name: (index + 0.5) / len(row) for row in rows for index, name in enumerate(row)}
        for row in rows if sweep % 2 else reversed(rows):
            ties = {name: [place[one] for one in sorted(tied[name])] or [place[name]] for name in row}
            row.sort(key=lambda name: (round(sum(ties[name]) / len(ties[name]), 9), name))
            place |= {name: (index + 0.5) / len(row) for index, name in enumerate(row)}
        if (count := crossings(rows, links)) < fewest:
            best, fewest = rows, count
    return best


def crossings(rows: list[list[str]], links: dict[str, list[str]]) -> int:
    """How many pairs of links between neighbouring rows cross."""
    count = 0
    for above, below in pairwise(rows):
        place = {name: index for index, name in enumerate(below)}
        ends = [(index, place[end]) for index, name in enumerate(above) for end in links.get(name, [])]
        count += sum((a - c) * (b - d) < 0 for a, b in ends for c, d in ends) // 2
    return count


def draw(picture: Picture) -> str:
    """The picture as SVG."""
    graph = reduced(without_cycles(picture.graph))
    level, links = with_waypoints(graph)
    rows = rows_of(level, links)
    groups = sorted({picture.group(name) for name in graph})
    color = {group: COLORS[index % len(COLORS)] for index, group in enumerate(groups)}
    width = {name: 20 + LETTER * len(name) if name in graph else 6.0 for name in level}
    spans = [sum(width[name] + GAP for name in row) - GAP for row in rows]
    total = max(*spans, 560.0) + 2 * MARGIN
    middle: dict[str, float] = {}
    top: dict[str, float] = {}
    for number, (row, span) in enumerate(zip(rows, spans, strict=True)):
        space = (total - 2 * MARGIN - span) / (len(row) + 1)  # the rest of the line, shared out
        x = MARGIN + space
        for name in row:
            middle[name], top[name] = x + width[name] / 2, TOP + 26 + number * ROW
            x += width[name] + GAP + space
    height = TOP + 26 + len(rows) * ROW - ROW + BOX + MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total:.0f} {height}" width="{total:.0f}" '
        f'height="{height}" role="img">',
        f"<title>{escape(picture.title)}</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="back" width="{total:.0f}" height="{height}"/>',
        f'<text class="title" x="{MARGIN}" y="{MARGIN + 8}">{escape(picture.title)}</text>',
        *_legend(groups, color, len(graph)),
        *(_arrow(_path(name, one, level), middle, top) for name in sorted(graph) for one in sorted(graph[name])),
    ]
    for name in sorted(graph):
        stroke = color[picture.group(name)]
        lines.append(
            f'<rect class="box" x="{middle[name] - width[name] / 2:.1f}" y="{top[name]}" width="{width[name]:.1f}" '
            f'height="{BOX}" rx="6" stroke="{stroke}"/><text x="{middle[name]:.1f}" y="{top[name] + 17.5}" '
            f'text-anchor="middle">{escape(name)}</text>'
        )
    return "\n".join([*lines, "</svg>", ""])


def _path(name: str, one: str, level: dict[str, int]) -> list[str]:
    return [name, *(f"{name}>{one}@{row}" for row in range(level[name] - 1, level[one], -1)), one]


def _arrow(path: list[str], middle: dict[str, float], top: dict[str, float]) -> str:
    """A smooth line through the waypoints, straight down past each of them, with a tip."""
    x, y = middle[path[0]], top[path[0]] + BOX
    curve = f"M{x:.1f} {y:.1f}"
    for name in path[1:]:
        last = name == path[-1]
        end, arrives = middle[name], top[name] - (5 if last else 0)
        bend = (arrives - y) / 2
        curve += f"C{x:.1f} {y + bend:.1f} {end:.1f} {arrives - bend:.1f} {end:.1f} {arrives:.1f}"
        x, y = end, arrives
        if not last:
            y += BOX
            curve += f"V{y:.1f}"
    return f'<path class="edge" d="{curve}"/><path class="tip" d="M{x:.1f} {y + 5:.1f}l-3.5 -7h7z"/>'


def _legend(groups: list[str], color: dict[str, str], count: int) -> list[str]:
    words = f"{count} parts; an arrow points to what is imported, arrows that follow from others are left out"
    lines = [f'<text class="note" x="{MARGIN}" y="{MARGIN + 28}">{words}</text>']
    x = MARGIN + 0.0
    for group in groups if len(groups) > 1 else []:
        lines.append(
            f'<rect x="{x:.1f}" y="{MARGIN + 40}" width="10" height="10" rx="3" fill="{color[group]}"/>'
            f'<text class="note" x="{x + 15:.1f}" y="{MARGIN + 49.5}">{escape(group)}</text>'
        )
        x += 35 + LETTER * len(group)
    return lines


LAYERS = {
    "core, files and types": ("core", "files", "types", "setting_checks"),
    "the library": ("batchnorm", "integrations", "methods", "metrics", "optim", "posterior", "prediction", "presets"),
    "data and models": ("data", "models"),
    "runs": ("cli", "demo", "fitting", "recipes", "report", "sklearn", "train"),
}


def layer(name: str) -> str:
    """The color group of a component."""
    return next((group for group, names in LAYERS.items() if name in names), "the library")


def room(name: str) -> str:
    """The folder that a module of optim is in."""
    return "/".join(["optim", *name.split(".")[:-1]])


def pictures() -> list[Picture]:
    """What is drawn."""
    return [
        Picture("imports.svg", "The components of varlearn", components(), layer),
        Picture("imports-optim.svg", "The modules of varlearn.optim", optim_modules(), room),
    ]


def main() -> int:
    """Write the pictures."""
    for picture in pictures():
        (DOCS / picture.name).write_text(draw(picture), encoding="utf-8")
        print(DOCS.relative_to(ROOT) / picture.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
