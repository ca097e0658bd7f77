"""Checkpoints of a run: one sealed safetensors file each, written whole or not at all, verified to the last bit.

The folder holds the newest two, `step-<number>.safetensors`, and in a run with validation data `best.safetensors`, the
one with the lowest validation NLL. `best-loo.safetensors` is the one with the lowest leave-one-out loss, in a run that
stops by it, and `epoch-<number>.safetensors` are those that `train.snapshots` keeps.

A checkpoint is everything that decides the rest of a run. It has no pickle in it: tensors by name, the rest as JSON in
the header, and the SHA-256 of every byte of the file, so that a flipped bit is an error and not another model.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from varlearn.files import sealed
from varlearn.files.atomic import remove_orphans, sync_folder, writing
from varlearn.files.formats import FileFormatError, check_format, entry, rebuilding
from varlearn.files.nested import pack, unpack
from varlearn.files.sealed import CorruptFileError
from varlearn.train.run_errors import RunFolderError

FORMAT = "varlearn.checkpoint"
FORMAT_VERSION = 1
KEPT = 2  # generations: while one is replaced, the other is whole


class Restored(NamedTuple):
    """What `Checkpoints.newest` found."""

    state: dict[str, Any] | None
    """The newest state that is sound, or None where there is no checkpoint at all."""
    path: Path | None
    """Its file."""
    damaged: dict[Path, str]
    """Newer ones that are not sound, with what is wrong."""


class Checkpoints:
    """The checkpoints of one run.

    Args:
        folder: made by the first `save`.

    >>> import tempfile, torch
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     checkpoints = Checkpoints(Path(folder, "checkpoint"))
    ...     for step in (1, 2, 3):
    ...         path = checkpoints.save(step, {"weight": torch.full((1,), float(step))})
    ...     [path.name for path in checkpoints.paths()], checkpoints.newest().state
    (['step-00000002.safetensors', 'step-00000003.safetensors'], {'weight': tensor([3.])})
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def best(self) -> Path:
        """Where the one with the lowest validation NLL is; a run without validation data has none."""
        return self.folder / "best.safetensors"

    def paths(self) -> list[Path]:
        """The numbered checkpoints, oldest first."""
        return sorted(self.folder.glob("step-*.safetensors"), key=_step_of)

    def save(self, step: int, state: dict[str, Any]) -> Path:
        """Write a checkpoint, then remove all but the newest two; on an error the earlier ones are as they were."""
        path = self.folder / f"step-{step:08d}.safetensors"
        write(path, state)
        self.remove_old()
        sync_folder(self.folder)
        return path

    def save_best(self, state: dict[str, Any], by: str = "validation") -> None:
        """Replace the best one, by a criterion of `best_by`."""
        write(self.best_by(by), state)

    def best_by(self, by: str) -> Path:
        """The checkpoint with the lowest validation NLL ("validation") or the lowest leave-one-out loss ("loo").

        >>> Checkpoints(Path("checkpoint")).best_by("loo").name
        'best-loo.safetensors'
        """
        return self.best if by == "validation" else self.folder / f"best-{by}.safetensors"

    def keep(self, epoch: int, state: dict[str, Any]) -> Path:
        """Write a checkpoint that no later one replaces.

        Args:
            epoch: after which it is taken.
            state: see `write`.
        """
        path = self.snapshot(epoch)
        write(path, state)
        return path

    def snapshot(self, epoch: int) -> Path:
        """Where the checkpoint kept after an epoch is.

        >>> Checkpoints(Path("checkpoint")).snapshot(30).name
        'epoch-00030.safetensors'
        """
        return self.folder / f"epoch-{epoch:05d}.safetensors"

    def snapshots(self) -> list[int]:
        """The epochs whose checkpoints were kept."""
        return sorted(int(path.stem.removeprefix("epoch-")) for path in self.folder.glob("epoch-*.safetensors"))

    def newest(self) -> Restored:
        """The newest checkpoint whose every bit is as written; damaged ones are named and passed over.

        Raises:
            CorruptFileError: if there are checkpoints, and none is sound.
        """
        damaged: dict[Path, str] = {}
        for path in reversed(self.paths()):
            try:
                return Restored(read(path), path, damaged)
            except CorruptFileError as error:
                damaged[path] = str(error)
        if damaged:
            raise CorruptFileError(
                "no checkpoint is sound: " + "; ".join(damaged.values()) + ". Start again in another folder"
            )
        return Restored(None, None, {})

    def clean(self) -> None:
        """Remove what a killed writer left: half a checkpoint."""
        remove_orphans(self.folder)

    def remove_old(self) -> None:
        """Remove all but the newest two. Set damaged ones aside first, or an older one that is sound may be lost."""
        for old in self.paths()[:-KEPT]:
            old.unlink(missing_ok=True)

    def set_aside(self, path: Path) -> None:
        """Give a damaged checkpoint a name under which nothing reads it."""
        with writing(path):
            path.replace(path.with_name(f"{path.name}.damaged"))


def write(path: Path, state: dict[str, Any]) -> None:
    """Write a nested state of tensors, numbers, strings and containers to one file; see `nested.pack`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write(Path(folder, "x.safetensors"), {"step": 3, "betas": (0.9, 0.99)})
    ...     read(Path(folder, "x.safetensors"))
    {'step': 3, 'betas': (0.9, 0.99)}
    """
    plain, tensors = pack(state)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        sealed.write(path, tensors, {"format": FORMAT, "format_version": FORMAT_VERSION, "state": plain})


def read(path: Path) -> dict[str, Any]:
    """Verify a checkpoint and return its state, on the CPU.

    Raises:
        CorruptFileError: naming the file, if any bit of it has changed.
        RunFolderError: if it is sound and something else, or of a later version.
        FileFormatError: if its description is malformed.
    """
    tensors, metadata = sealed.read(path)
    try:
        check_format(path, metadata, {FORMAT: (FORMAT_VERSION,)}, "varlearn train")
    except FileFormatError as error:
        raise RunFolderError(f"{error}, or move the file away") from error
    with rebuilding(path, "a checkpoint"):
        state = unpack(entry(path, metadata, "state", dict), tensors)
        if not isinstance(state, dict):
            raise TypeError(f"its state is a {type(state).__name__} and must be a dict")
    return state


def _step_of(path: Path) -> int:
    digits = path.stem.removeprefix("step-")
    return int(digits) if digits.isdigit() else -1
