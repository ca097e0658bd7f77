"""The table of docs/reliability.md, made from the counts on disk: `python -m soak.page`."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.tables import as_markdown
from soak import results
from soak.parts import PARTS
from soak.results import FOLDER, REPO

PAGE = REPO / "docs" / "reliability.md"
_MARKED = re.compile(r"(<!-- soak -->\n).*?(<!-- /soak -->)", flags=re.DOTALL)
_HEAD = ["promise", "tried", "aim", "broken", "largest", "command", "date"]


def fill(page: str, folder: Path = FOLDER) -> str:
    """Replace what stands between the marks `soak` and `/soak`; the text around them is left alone."""
    return _MARKED.sub(lambda match: f"{match[1]}{as_markdown(_grid(folder))}\n{match[2]}", page)


def _grid(folder: Path) -> list[list[str]]:
    grid = [_HEAD]
    for part in PARTS.values():
        found = results.read(folder, part.name)
        if found is None:
            grid.append([part.promise, "not run", f"{part.full:,}", "–", "–", f"`--only {part.name}`", "–"])
            continue
        aim = found["done"] if found["finished"] and found["done"] < part.full == found["wanted"] else part.full
        largest = ", ".join(f"{value:.3g} {name}" for name, value in found["largest"].items()) or "–"
        grid.append([
            part.promise,
            f"{found['done']:,} {part.unit}",
            f"{aim:,}",
            f"{found['broken']:,}",
            largest,
            f"`{found['environment']['command']}`",
            str(found["environment"]["date"]),
        ])  # fmt: skip
    return grid


def refresh(page: Path = PAGE) -> None:
    """Rewrite the page."""
    page.write_text(fill(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    refresh()
