"""Figures on disk: one JSON file per part, checked when written and when read, and compared with the committed ones."""

from __future__ import annotations

import json
import math
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.tables import Column

FORMAT = 1
REPO = Path(__file__).resolve().parents[1]
FOLDER = REPO / "benchmarks" / "results"

Figure = dict[str, str | int | float]
Document = dict[str, Any]


def document(part: str, figures: list[Figure], environment: dict[str, Any], quick: bool) -> Document:
    """What one part's file holds."""
    made = {"format": FORMAT, "part": part, "quick": quick, "environment": environment, "figures": figures}
    check(made)
    return made


def check(found: Document) -> None:
    """Refuse what is not a document of this format, or has a figure that is not a finite number."""
    expected = {"format", "part", "quick", "environment", "figures"}
    if set(found) != expected:
        raise ValueError(f"keys {sorted(found)} must be {sorted(expected)}; measure again")
    if found["format"] != FORMAT:
        raise ValueError(f"format {found['format']} must be {FORMAT}; measure again")
    if not found["figures"]:
        raise ValueError(f"part {found['part']!r} has no figures; see above what was left out")
    seen = set()
    for figure in found["figures"]:
        row = figure.get("case"), figure.get("contender")
        if not all(isinstance(name, str) and name for name in row) or row in seen:
            raise ValueError(f"row {row} must name a case and a contender, once; measure again")
        seen.add(row)
        for name, value in figure.items():
            if not isinstance(value, str) and not math.isfinite(value):
                raise ValueError(f"{name}={value} of {row} must be finite; measure again")


def write(folder: Path, made: Document) -> Path:
    """Write `folder`/<part>.json, whole or not at all."""
    check(made)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{made['part']}.json"
    unfinished = path.with_suffix(".tmp")
    unfinished.write_text(json.dumps(made, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    os.replace(unfinished, path)
    return path


def read(path: Path) -> Document | None:
    """A part's file, or None where there is none."""
    if not path.exists():
        return None
    found = json.loads(path.read_text(encoding="utf-8"))
    check(found)
    return found


def committed(part: str) -> Document | None:
    """The figures of the last commit; those on disk where there is no git, as in a source archive."""
    path = FOLDER / f"{part}.json"
    try:
        shown = subprocess.run(
            ["git", "show", f"HEAD:{path.relative_to(REPO).as_posix()}"],
            cwd=REPO,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return read(path)
    found = json.loads(shown.stdout)
    check(found)
    return found


def changes(old: Document, new: Document, columns: Sequence[Column]) -> list[str]:
    """Lines that say how the main columns of rows that are in both have changed."""
    before = {(figure["case"], figure["contender"]): figure for figure in old["figures"]}
    lines = []
    for figure in new["figures"]:
        earlier = before.get((figure["case"], figure["contender"]))
        for column in columns:
            if earlier is None or not column.is_main or column.key not in earlier or column.key not in figure:
                continue
            was, now = float(earlier[column.key]), float(figure[column.key])
            share = f" ({now / was - 1:+.0%})" if was > 0 else ""
            lines.append(
                f"{figure['case']}, {figure['contender']}, {column.title}: "
                f"{column.show(was)} -> {column.show(now)}{share}"
            )
    return lines


def other_conditions(old: Document, new: Document) -> list[str]:
    """What differs between the machines and versions of two documents, as far as it decides speed."""
    names = ("cpu", "instructions", "cores", "threads", "torch", "python", "compiler")
    pairs = [(name, old["environment"].get(name), new["environment"].get(name)) for name in names]
    return [f"{name}: {was} -> {now}" for name, was, now in pairs if was != now]
