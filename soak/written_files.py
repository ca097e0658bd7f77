"""Every kind of file as the library itself writes it, in a folder of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from soak.file_kinds import KINDS, FileKind, weights
from varlearn.files.checked_json import read_json_lines
from varlearn.report.figures import curves
from varlearn.report.style import save, write
from varlearn.train.checkpoint import Checkpoints
from varlearn.train.log import JsonLines


class Written(NamedTuple):
    """One kind of file.

    Attributes:
        name: as the campaign counts it.
        write: (folder, variant) writes variant 0, the old content, or variant 1, the new one.
        load: (folder) what a reader finds.
        files: (folder) the paths that a write may make.
        partly: values besides the old and the new one that a reader may find.
    """

    name: str
    write: Callable[[Path, int], object]
    load: Callable[[Path], Any]
    files: Callable[[Path], set[Path]]
    partly: tuple[Any, ...] = ()


def _single(kind: FileKind) -> Written:
    def write_one(folder: Path, variant: int) -> None:
        folder.mkdir(exist_ok=True)
        kind.write(folder / kind.file, variant)

    return Written(kind.name, write_one, lambda folder: kind.load(folder / kind.file), lambda f: {f / kind.file})


def _write_checkpoint(folder: Path, variant: int) -> None:
    checkpoints = Checkpoints(folder)
    for step in (3,) if variant else (1, 2):
        checkpoints.save(step, {"step": step, "weights": weights(step)})


def _newest(folder: Path) -> Any:
    restored = Checkpoints(folder).newest()
    if restored.damaged:
        raise ValueError(f"damaged: {restored.damaged}")
    if restored.state is None:
        raise FileNotFoundError("no checkpoint")
    return restored.state


def _numbered(folder: Path) -> set[Path]:
    return {folder / f"step-{step:08d}.safetensors" for step in (1, 2, 3)}


_RECORDS = [{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.25}, {"step": 3, "eval": {"nll": 0.5}}]


def _append(folder: Path, variant: int) -> None:
    folder.mkdir(exist_ok=True)
    log = JsonLines(folder / "log.jsonl")
    try:
        for record in _RECORDS[1:] if variant else _RECORDS[:1]:
            log.write(record)
        log.flush()
    finally:
        log.close()


def _first_records(folder: Path) -> Any:
    """The records, which must be the first ones that were written; a fault may have cost the others."""
    found = read_json_lines(folder / "log.jsonl")
    if found.damaged:
        raise ValueError(f"damaged lines {found.damaged}")
    return found.records[:1]


def _page(folder: Path, variant: int) -> None:
    write(folder / "report.html", lambda path: path.write_text(f"<html>{variant}" + "x" * 5000, encoding="utf-8"))


def _figure(folder: Path, variant: int) -> None:
    save(curves({"loss": [(0.0, 1.0), (1.0, 0.5 + variant)]}, "step", "loss"), folder / "loss")


def _drawn(folder: Path) -> Any:
    """Two files, each of which is whole if it is there."""
    for name, end in (("loss.png", b"IEND\xaeB`\x82"), ("loss.svg", b"</svg>")):
        if (folder / name).exists() and not (folder / name).read_bytes().rstrip(b"\n").endswith(end):
            raise ValueError(f"half of {name}")
    return ()


WRITTEN: tuple[Written, ...] = (
    Written("checkpoint", _write_checkpoint, _newest, _numbered),
    *(_single(kind) for kind in KINDS if kind.name in ("posterior", "predictions", "config", "metrics")),
    Written("log", _append, _first_records, lambda folder: {folder / "log.jsonl"}, ([],)),
    Written("report", _page, lambda f: (f / "report.html").read_bytes(), lambda f: {f / "report.html"}),
    Written("figure", _figure, _drawn, lambda folder: {folder / "loss.png", folder / "loss.svg"}),
)
