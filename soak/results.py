"""Counts on disk: one JSON file per part, rewritten while the part runs, so that an interrupted part can go on."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

from soak.part import Outcome, Part

FORMAT = 1
REPO = Path(__file__).resolve().parents[1]
FOLDER = REPO / "soak" / "results"
SHOWN = 50  # broken cases that are kept with their details

Document = dict[str, Any]
_KEYS = {
    "format", "part", "seed", "wanted", "done", "broken", "finished", "seconds", "kinds", "largest", "details",
    "environment",
}  # fmt: skip


def begin(part: Part, seed: int, wanted: int, environment: dict[str, Any]) -> Document:
    """The document of a part before its first case."""
    return {
        "format": FORMAT,
        "part": part.name,
        "seed": seed,
        "wanted": wanted,
        "done": 0,
        "broken": 0,
        "finished": False,
        "seconds": 0.0,
        "kinds": {},
        "largest": {},
        "details": [],
        "environment": environment,
    }


def add(document: Document, outcome: Outcome) -> None:
    """Count one more case."""
    number = document["done"]
    document["done"] += 1
    kind = document["kinds"].setdefault(outcome.kind, {"done": 0, "broken": 0})
    kind["done"] += 1
    for name, value in outcome.measured.items():
        document["largest"][name] = max(value, document["largest"].get(name, -math.inf))
    if not outcome.kept:
        document["broken"] += 1
        kind["broken"] += 1
        if len(document["details"]) < SHOWN:
            document["details"].append({"number": number, "kind": outcome.kind, "detail": plain(outcome.detail)})


def plain(detail: str) -> str:
    """A detail that every terminal and file can hold: printable, of at most 500 characters.

    >>> plain("a\\ud800\\nb")
    'a\\\\ud800 b'
    """
    return " ".join(detail.encode("ascii", "backslashreplace").decode().split())[:500]


def kept(part: Part, document: Document) -> bool:
    """Whether the promise holds in as many of the cases as it must."""
    return document["broken"] <= (1 - part.share) * document["done"] + 1e-9


def write(folder: Path, document: Document) -> Path:
    """Write `folder`/<part>.json, whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{document['part']}.json"
    unfinished = path.with_suffix(".tmp")
    unfinished.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    os.replace(unfinished, path)
    return path


def read(folder: Path, name: str) -> Document | None:
    """A part's document, or None if there is none."""
    path = folder / f"{name}.json"
    if not path.exists():
        return None
    document = json.loads(path.read_text(encoding="utf-8"))
    if set(document) != _KEYS or document["format"] != FORMAT or document["part"] != name:
        raise ValueError(f"{path} is not a document of format {FORMAT}; remove it to begin again")
    return document
