"""Turn the files of a large corpus into two files of tokens, by several processes that hold little in memory.

Each process encodes one unit of the corpus at a time (`documents.units`) into files of its own. They are appended to
`train.bin.partial` and `test.bin.partial` in the order of the corpus, so the result depends on neither the number of
processes nor interruptions. `progress.json` says how far that is. The same call goes on from there.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from varlearn.data import bpe, checksum, documents, sources
from varlearn.data.documents import Unit
from varlearn.data.errors import CorruptDataError
from varlearn.data.worker_processes import peak_memory, results_in_order
from varlearn.files.atomic import remove_orphans, write_text, writing
from varlearn.files.locking import locked

HELD_OUT = 0.0005  # of the documents
FOLDER = "openwebtext"  # where `load` finds the corpus
PREPARED = "prepared.json"  # what the files beside it are, with their checksums
SPLITS = ("train", "test")
_PROGRESS = "progress.json"
_PARTS = "parts"


class Encoded(NamedTuple):
    """What a process has made of a unit: bytes read, documents, tokens of each split, its peak of memory in bytes."""

    read: int
    documents: int
    tokens: dict[str, int]
    memory: int


class Report(NamedTuple):
    """What was prepared.

    Attributes:
        folder: of `train.bin`, `test.bin` and `prepared.json`.
        documents: in both.
        tokens: of each split.
        new_tokens: how many of them were made now, and not before an interruption.
        seconds: that it took now.
        memory: the most that one of the processes has used, in bytes.
    """

    folder: Path
    documents: int
    tokens: dict[str, int]
    new_tokens: int
    seconds: float
    memory: int


def prepare_corpus(
    files: Sequence[Path],
    out: Path | None = None,
    *,
    processes: int | None = None,
    held_out: float = HELD_OUT,
    root: Path | None = None,
    progress: Callable[[int, int, int], None] | None = None,
) -> Report:
    """Encode a corpus in GPT-2's tokens, `<|endoftext|>` after each document.

    A document is held out for the test split if its checksum says so: equal documents are in the same split. Of a
    document of several megabytes each megabyte counts as one.

    Args:
        files: of the corpus, or folders; see `documents`.
        out: folder for `train.bin` and `test.bin`; None for `openwebtext` where `load` looks last.
        processes: how many; None for one per processor.
        held_out: share of the documents in the test split.
        root: where GPT-2's merges are looked for, see `sources.folders`.
        progress: told of bytes read, all bytes, and tokens made by this call, after each unit.

    Raises:
        ValueError: an argument, or a folder that was begun with other files or settings.
        MissingDataError: a file is nowhere.
        CorruptDataError: a file cannot be read.
        WriteError: the disk is full. What was written stays, and the same call goes on.
        BusyError: another process prepares the same folder.
    """
    if processes is not None and processes < 1:
        raise ValueError(f"processes={processes} must be at least 1; leave it out for one per processor")
    if not 0.0 < held_out < 1.0:
        raise ValueError(f"held_out={held_out} must be a share between 0 and 1; {HELD_OUT} is usual")
    begun = time.monotonic()
    found = documents.source_files(files)
    merges = sources.published(bpe.MERGES, root)
    settings = {
        "files": [[str(path.resolve()), path.stat().st_size] for path in found],
        "merges_sha256": checksum.of(merges, "sha256"),
        "held_out": held_out,
    }
    folder = sources.folders(root)[-1] / FOLDER if out is None else out
    finished = _finished(folder, settings)
    if finished is not None:
        return Report(folder, finished["documents"], finished["tokens"], 0, time.monotonic() - begun, peak_memory())
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / ".lock", f"another process is preparing {folder}; wait for it, or give another --out"):
        state, made, memory = _go_on(folder, settings, found, merges, processes or os.cpu_count() or 1, progress)
    return Report(folder, state["documents"], state["tokens"], made, time.monotonic() - begun, memory)


def _go_on(
    folder: Path,
    settings: dict[str, Any],
    files: Sequence[Path],
    merges: Path,
    processes: int,
    progress: Callable[[int, int, int], None] | None,
) -> tuple[dict[str, Any], int, int]:
    """Encode what is not encoded yet: (how far it is then, tokens made now, the most memory of a process)."""
    state = _state(folder, settings)
    before = sum(state["tokens"].values())
    with writing(folder):
        remove_orphans(folder)
        shutil.rmtree(folder / _PARTS, ignore_errors=True)
        (folder / _PARTS).mkdir()
        for split in SPLITS:
            os.truncate(_partial(folder, split), 2 * state["tokens"][split])
    units = documents.units(files)
    jobs = [(unit, folder / _PARTS, number, str(merges), settings["held_out"]) for number, unit in enumerate(units)]
    total, memory = sum(_size(unit) for unit in units), 0
    with closing(results_in_order(_encode, jobs[state["units"] :], processes)) as results:
        for encoded in results:
            with writing(folder):
                _append(folder, state, encoded)
            memory = max(memory, encoded.memory)
            if progress is not None:
                progress(state["read"], total, sum(state["tokens"].values()) - before)
    _finish(folder, state, settings)
    return state, sum(state["tokens"].values()) - before, max(memory, peak_memory())


def _finished(folder: Path, settings: dict[str, Any]) -> dict[str, Any] | None:
    """The facts of a folder that is complete, its checksums verified; None if it is not."""
    path = folder / PREPARED
    if not path.exists():
        return None
    facts = _read(path)
    if facts["settings"] != settings:
        raise ValueError(f"{folder} holds a corpus made of other files or settings; give another --out, or remove it")
    for split in SPLITS:
        checksum.verify(folder / f"{split}.bin", facts["sha256"][split])
    return facts


def _state(folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """How far an interrupted call came, or the beginning."""
    path = folder / _PROGRESS
    if path.exists():
        state = _read(path)
        if state["settings"] != settings:
            raise ValueError(
                f"{folder} holds a corpus that was begun with other files or settings; give another --out, or remove it"
            )
        for split in SPLITS:  # interrupted while the names were changed
            if (folder / f"{split}.bin").exists() and not _partial(folder, split).exists():
                os.replace(folder / f"{split}.bin", _partial(folder, split))
        sizes = {split: _partial(folder, split) for split in SPLITS}
        if all(file.exists() and file.stat().st_size >= 2 * state["tokens"][split] for split, file in sizes.items()):
            return state
        raise CorruptDataError(f"{folder} has lost a part of what was written; remove it and begin again")
    taken = [f"{split}.bin" for split in SPLITS if (folder / f"{split}.bin").exists()]
    if taken:
        raise ValueError(f"{folder} has a {taken[0]} already, which is not of this command; give another --out")
    for split in SPLITS:
        with writing(folder):
            _partial(folder, split).write_bytes(b"")
    empty = {split: 0 for split in SPLITS}
    return {"settings": settings, "units": 0, "read": 0, "documents": 0, "tokens": empty}


def _read(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CorruptDataError(f"{path} is damaged ({error}); remove its folder and begin again") from error


def _partial(folder: Path, split: str) -> Path:
    return folder / f"{split}.bin.partial"


def _size(unit: Unit) -> int:
    return (unit.path.stat().st_size if unit.end is None else unit.end) - unit.start


def _append(folder: Path, state: dict[str, Any], encoded: Encoded) -> None:
    """Append a unit's tokens to the files, then say so in `progress.json`: in this order nothing is lost or doubled."""
    for split in SPLITS:
        part = _part(folder / _PARTS, state["units"], split)
        with part.open("rb") as source, _partial(folder, split).open("ab") as target:
            shutil.copyfileobj(source, target, 1 << 20)
            target.flush()
            os.fsync(target.fileno())
        part.unlink()
        state["tokens"][split] += encoded.tokens[split]
    state["units"] += 1
    state["read"] += encoded.read
    state["documents"] += encoded.documents
    write_text(folder / _PROGRESS, json.dumps(state))


def _finish(folder: Path, state: dict[str, Any], settings: dict[str, Any]) -> None:
    for split, count in state["tokens"].items():
        if count == 0:
            raise ValueError(
                f"the {split} split has no token: {state['documents']:,} documents are too few for held_out="
                f"{settings['held_out']}; use a larger --held-out with another --out"
            )
    sums = {split: checksum.of(_partial(folder, split), "sha256") for split in SPLITS}
    with writing(folder):
        for split in SPLITS:
            os.replace(_partial(folder, split), folder / f"{split}.bin")
        facts = {
            "settings": settings,
            "documents": state["documents"],
            "tokens": state["tokens"],
            "sha256": sums,
            "tokenizer": "gpt2",
            "dtype": "uint16, little-endian",
        }
        write_text(folder / PREPARED, json.dumps(facts, indent=2) + "\n")
        shutil.rmtree(folder / _PARTS, ignore_errors=True)
        (folder / _PROGRESS).unlink(missing_ok=True)


# In a process of its own


def _part(parts: Path, number: int, split: str) -> Path:
    return parts / f"{number}.{split}"


_coders: dict[str, Any] = {}  # one in each process; it takes a second to make


def _encode(unit: Unit, parts: Path, number: int, merges: str, held_out: float) -> Encoded:
    """Write the tokens of a unit into one file for each split."""
    from varlearn.data.fast_tokens import FastTokens

    if merges not in _coders:
        _coders[merges] = FastTokens(Path(merges))
    coder = _coders[merges]
    end, counts, count = coder.end_of_text.to_bytes(2, "little"), {"train": 0, "test": 0}, 0
    with writing(parts):
        targets = {split: _part(parts, number, split).open("wb") for split in counts}
    try:
        for text, is_end in documents.pieces(unit):
            split = "test" if _is_held_out(text, held_out) else "train"
            tokens = coder.encode(text)
            with writing(parts):
                targets[split].write(tokens.tobytes() + (end if is_end else b""))
            counts[split] += len(tokens) + is_end
            count += is_end
    finally:
        with writing(parts):
            for target in targets.values():
                target.close()
    return Encoded(_size(unit), count, counts, peak_memory())


def _is_held_out(text: str, share: float) -> bool:
    digest = hashlib.blake2b(text.encode("utf-8"), digest_size=8).digest()
    return int.from_bytes(digest, "little") < share * 2.0**64
