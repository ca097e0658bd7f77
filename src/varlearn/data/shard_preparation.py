"""Pack folders of images into shards, by several processes.

Each process writes one shard at a time, under another name until it is whole. What a shard holds follows from the list
of files. So the same call goes on after an interruption, and the result does not depend on the number of processes.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import random
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from varlearn.data import checksum, sources
from varlearn.data.errors import CorruptDataError, MissingDataError
from varlearn.data.worker_processes import peak_memory, results_in_order
from varlearn.files.atomic import remove_orphans, replacing, write_text, writing
from varlearn.files.locking import locked

PREPARED, INDEX = "prepared.json", "index.npz"
SPLITS = ("train", "val")
PER_SHARD = 2_000  # images: about 200 MB of ImageNet
_LOCK = ".lock"
_SUFFIXES = (".jpeg", ".jpg", ".png")


class Packed(NamedTuple):
    """A shard: its name, size and checksum, where its images are (first byte, bytes), and the peak of memory."""

    name: str
    size: int
    sha256: str
    places: list[tuple[int, int]]
    memory: int


class ShardReport(NamedTuple):
    """What was prepared.

    Attributes:
        folder: of the shards.
        images: of each split.
        new_images: how many of them were packed now, and not before an interruption.
        seconds: that it took now.
        memory: the most that one of the processes has used, in bytes.
    """

    folder: Path
    images: dict[str, int]
    new_images: int
    seconds: float
    memory: int


def prepare_images(
    source: Path,
    out: Path | None = None,
    *,
    processes: int | None = None,
    shorter_side: int | None = None,
    per_shard: int = PER_SHARD,
    progress: Callable[[int, int, int], None] | None = None,
) -> ShardReport:
    """Pack `source/{train,val}/CLASS/*` into .tar files, in random order, with an index.

    Args:
        source: folder with one or both splits.
        out: folder for the shards; None for `imagenet` where `load` looks last.
        processes: how many; None for one per processor.
        shorter_side: make larger images smaller, to so many pixels; None keeps the files as they are.
        per_shard: images of a shard.
        progress: told of images that are done, of all images, and of those packed by this call, after each shard.

    Raises:
        ValueError: an argument, or a folder that was begun with other files or settings.
        MissingDataError: there is nothing to pack.
        CorruptDataError: a file is no image.
        WriteError: the disk is full. Whole shards stay, and the same call goes on.
        BusyError: another process prepares the same folder.
    """
    for name, value in (("processes", processes), ("shorter_side", shorter_side), ("per_shard", per_shard)):
        if value is not None and value < 1:
            raise ValueError(f"{name}={value} must be at least 1")
    begun = time.monotonic()
    classes, files = _listed(source)
    settings = {
        "files": _digest_of(files),
        "shorter_side": shorter_side,
        "per_shard": per_shard,
    }
    folder = sources.folders(None)[-1] / "imagenet" if out is None else out
    counts = {split: len(its) for split, its in files.items()}
    if _is_finished(folder, settings):
        return ShardReport(folder, counts, 0, time.monotonic() - begun, peak_memory())
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / _LOCK, f"another process is preparing {folder}; wait for it, or give another --out"):
        _begin(folder, settings)
        shards = {split: list(_shards(its, split, per_shard)) for split, its in files.items()}
        known = {name: _known(folder, name) for its in shards.values() for name, _ in its}
        jobs = [
            (folder, name, its, shorter_side) for group in shards.values() for name, its in group if not known[name]
        ]
        done = sum(counts.values()) - sum(len(job[2]) for job in jobs)
        memory, before = 0, done
        with closing(results_in_order(_pack, jobs, processes or os.cpu_count() or 1)) as results:
            for packed in results:
                known[packed.name], memory = packed, max(memory, packed.memory)
                done += len(packed.places)
                if progress is not None:
                    progress(done, sum(counts.values()), done - before)
        _finish(folder, settings, classes, shards, known)
    return ShardReport(folder, counts, done - before, time.monotonic() - begun, max(memory, peak_memory()))


def _listed(source: Path) -> tuple[list[str], dict[str, list[tuple[str, int]]]]:
    """The classes, and for each split its images: path and number of the class."""
    splits = [split for split in SPLITS if (source / split).is_dir()]
    if not splits:
        raise MissingDataError(f"{source} has neither a folder train nor val; give the folder that holds them")
    classes = sorted({entry.name for split in splits for entry in os.scandir(source / split) if entry.is_dir()})
    found: dict[str, list[tuple[str, int]]] = {}
    for split in splits:
        found[split] = []
        for number, name in enumerate(classes):
            folder = source / split / name
            its = sorted(os.scandir(folder), key=lambda entry: entry.name) if folder.is_dir() else []
            images = [(entry.path, number) for entry in its if entry.name.lower().endswith(_SUFFIXES)]
            if not images:
                raise MissingDataError(f"{folder} has no image; each class needs some in each of {', '.join(splits)}")
            found[split] += images
        random.Random(0).shuffle(found[split])  # so that a shard has images of many classes
    return classes, found


def _digest_of(files: dict[str, list[tuple[str, int]]]) -> str:
    lines = (f"{split} {Path(path).name} {label}" for split, its in files.items() for path, label in its)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _shards(files: list[tuple[str, int]], split: str, count: int) -> Iterator[tuple[str, list[tuple[str, int]]]]:
    for number, start in enumerate(range(0, len(files), count)):
        yield f"{split}-{number:05d}.tar", files[start : start + count]


def _begin(folder: Path, settings: dict[str, Any]) -> None:
    """Begin in an empty folder, or see that it was begun for the same."""
    begun = folder / "progress.json"
    if begun.exists():
        if json.loads(begun.read_text(encoding="utf-8")) != settings:
            raise ValueError(
                f"{folder} holds shards that were begun with other files or settings; give another --out, or remove it"
            )
        remove_orphans(folder)
        return
    if any(path.name != _LOCK for path in folder.iterdir()):
        raise ValueError(f"{folder} is not empty, and not of this command; give another --out")
    write_text(begun, json.dumps(settings))


def _is_finished(folder: Path, settings: dict[str, Any]) -> bool:
    """Whether the folder is complete; then all checksums are compared."""
    path = folder / PREPARED
    if not path.exists():
        return False
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        is_same, shards = facts["settings"] == settings, [one for its in facts["shards"].values() for one in its]
    except (ValueError, KeyError) as error:
        raise CorruptDataError(f"{path} is damaged ({error}); remove its folder and begin again") from error
    if not is_same:
        raise ValueError(f"{folder} holds shards made of other files or settings; give another --out, or remove it")
    for shard in shards:
        checksum.verify(folder / shard["name"], shard["sha256"])
    return True


def _known(folder: Path, name: str) -> Packed | None:
    """A shard that was packed before an interruption."""
    path = folder / f"{name}.json"
    if not path.exists() or not (folder / name).exists():
        return None
    words = json.loads(path.read_text(encoding="utf-8"))
    packed = Packed(words["name"], words["size"], words["sha256"], [tuple(p) for p in words["places"]], 0)
    return packed if (folder / name).stat().st_size == packed.size else None


def _finish(folder: Path, settings: dict[str, Any], classes: list[str], shards: Any, known: Any) -> None:
    import numpy as np

    arrays: dict[str, Any] = {}
    for split, its in shards.items():
        places = [(k, *place) for k, (name, _) in enumerate(its) for place in known[name].places]
        arrays[f"{split}_places"] = np.array(places, dtype=np.int64).reshape(-1, 3)
        arrays[f"{split}_labels"] = np.array([label for _, files in its for _, label in files], dtype=np.int64)
    with writing(folder / INDEX), replacing(folder / INDEX) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)
    facts = {
        "settings": settings,
        "classes": classes,
        "shards": {
            split: [{"name": name, "bytes": known[name].size, "sha256": known[name].sha256} for name, _ in its]
            for split, its in shards.items()
        },
    }
    write_text(folder / PREPARED, json.dumps(facts, indent=2) + "\n")
    with writing(folder):
        for its in shards.values():
            for name, _ in its:
                (folder / f"{name}.json").unlink(missing_ok=True)
        (folder / "progress.json").unlink(missing_ok=True)


# In a process of its own


def _pack(folder: Path, name: str, files: list[tuple[str, int]], shorter_side: int | None) -> Packed:
    """Write a shard: for each image KEY.jpg (or as it was called) and KEY.cls, the number of its class."""
    path = folder / name
    with writing(path), replacing(path) as temporary:
        with tarfile.open(temporary, "w", format=tarfile.USTAR_FORMAT) as archive:
            for number, (file, label) in enumerate(files):
                content, suffix = _content(Path(file), shorter_side)
                for ending, data in ((suffix, content), ("cls", str(label).encode())):
                    member = tarfile.TarInfo(f"{number:06d}.{ending}")
                    member.size = len(data)
                    archive.addfile(member, io.BytesIO(data))
        with tarfile.open(temporary) as archive:
            places = [(one.offset_data, one.size) for one in archive if not one.name.endswith(".cls")]
        size, digest = temporary.stat().st_size, checksum.of(temporary, "sha256")
    packed = Packed(name, size, digest, places, peak_memory())
    write_text(folder / f"{name}.json", json.dumps(packed._asdict()))
    return packed


def _content(path: Path, shorter_side: int | None) -> tuple[bytes, str]:
    """The bytes of an image, and the ending of its name."""
    from PIL import Image

    suffix = "png" if path.suffix.lower() == ".png" else "jpg"
    try:
        content = path.read_bytes()
        with Image.open(io.BytesIO(content)) as image:
            factor = 1.0 if shorter_side is None else shorter_side / min(image.size)
            if factor >= 1.0:
                return content, suffix
            width, height = (max(1, round(side * factor)) for side in image.size)
            smaller = image.convert("RGB").resize((width, height), Image.Resampling.LANCZOS)
    except (OSError, SyntaxError) as error:
        raise CorruptDataError(f"{path} must be an image, but {error}; put the original file back") from error
    buffer = io.BytesIO()
    smaller.save(buffer, "JPEG", quality=95)
    return buffer.getvalue(), "jpg"
