"""The folder of a run: the names of its files, and whether a run may begin or continue in it."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from varlearn.files.atomic import remove_orphans, writing
from varlearn.files.checked_json import write_json
from varlearn.train.config import Run, from_json, to_json
from varlearn.train.joined_names import flattened
from varlearn.train.run_errors import RunFolderError

if TYPE_CHECKING:
    from varlearn.train.checkpoint import Checkpoints


@dataclass(frozen=True)
class RunFolder:
    """Where the files of a run are; each stage reads its left neighbour's.

    >>> RunFolder(Path("runs/x")).posterior.name
    'posterior.safetensors'
    """

    out: Path

    @property
    def config(self) -> Path:
        """The run itself, as JSON."""
        return self.out / "config.json"

    @property
    def env(self) -> Path:
        """The machine and the packages."""
        return self.out / "env.json"

    @property
    def log(self) -> Path:
        """What was measured while training, one JSON object per line."""
        return self.out / "log.jsonl"

    @property
    def timing(self) -> Path:
        """When, and how fast."""
        return self.out / "timing.jsonl"

    @property
    def checkpoints(self) -> Checkpoints:
        """The newest two, and the best on validation data."""
        from varlearn.train.checkpoint import Checkpoints  # needs torch, and the other files do not

        return Checkpoints(self.out / "checkpoint")

    @property
    def posterior(self) -> Path:
        """What training found."""
        return self.out / "posterior.safetensors"

    @property
    def ensemble(self) -> Path:
        """What it is made of, if it is an ensemble of other runs."""
        return self.out / "ensemble.json"

    @property
    def members(self) -> tuple[Run, ...]:
        """The runs that each component of the posterior came from; none unless this is an ensemble."""
        from varlearn.train.ensemble_file import read_ensemble

        return tuple(one.run for one in read_ensemble(self.ensemble).members) if self.ensemble.exists() else ()

    @property
    def predictions(self) -> Path:
        """What it says about the test examples."""
        return self.out / "predictions.safetensors"

    @property
    def analysis(self) -> Path:
        """What the report shows besides scores."""
        return self.out / "analysis.json"

    @property
    def metrics(self) -> Path:
        """How good that is."""
        return self.out / "metrics.json"

    @property
    def advice(self) -> Path:
        """What is wrong with the run, in words."""
        return self.out / "advice.json"

    @property
    def sensitivity(self) -> Path:
        """What each training example does; a table of it has the same name with .csv."""
        return self.out / "sensitivity.safetensors"

    def check(self, run: Run, *, resume: bool) -> None:
        """Refuse a folder that this run must not use; nothing is written.

        Raises:
            RunFolderError: if it is not empty and `resume` is False, or holds another run.
        """
        self._check_usable(resume)
        if self.config.exists():
            self._check_same(run)

    @contextlib.contextmanager
    def opened(self, run: Run, *, resume: bool) -> Iterator[None]:
        """Make the folder for a new run, or check that it is this run's, and keep other processes out meanwhile.

        Nothing in the folder is changed before the lock is held: the files may be those of a run that is training.
        Wrong data or arguments that end a new run before its first checkpoint leave no folder, which would block the
        corrected call.

        Raises:
            RunFolderError: if it is not empty and `resume` is False, holds another run, or is being trained in.
            WriteError: if it cannot be written.
        """
        self._check_usable(resume)
        is_new = not self.config.exists()
        for folder in (self.out, self.checkpoints.folder):  # now, and not when the first checkpoint is due
            with writing(folder):
                folder.mkdir(parents=True, exist_ok=True)
                if not os.access(folder, os.W_OK):
                    raise PermissionError(None, "the folder is read-only")
        with self.locked():
            if self.config.exists():
                self.check(run, resume=resume)  # another process may have begun a run before the lock was ours
            else:
                write_json(self.config, json.loads(to_json(run)))
            remove_orphans(self.out)
            self.checkpoints.clean()
            try:
                yield
            except (TypeError, ValueError):
                if is_new and not self.checkpoints.paths():
                    self._remove()
                raise

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from training in this folder meanwhile; the system forgets the lock with the process.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as out, RunFolder(Path(out)).locked():
        ...     with RunFolder(Path(out)).locked():
        ...         pass
        Traceback (most recent call last):
        ...
        varlearn.train.run_errors.RunFolderError: another process is training in ...; wait for it, or end it
        """
        try:
            import fcntl
        except ImportError:  # not on Windows
            yield
            return
        with open(self.out / ".lock", "w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise RunFolderError(f"another process is training in {self.out}; wait for it, or end it") from error
            yield

    def _check_usable(self, resume: bool) -> None:
        if self.out.exists() and not self.out.is_dir():
            raise RunFolderError(f"out={str(self.out)!r} is a file; a run needs a folder, choose another name")
        if self.ensemble.exists():
            raise RunFolderError(
                f"out={str(self.out)!r} holds an ensemble, which is not trained; varlearn ensemble makes it, choose "
                "another folder"
            )
        if not self.config.exists():
            if self.out.exists() and not self._has_only_begun():
                raise RunFolderError(
                    f"out={str(self.out)!r} is not empty, and what is in it is no run; choose an empty folder"
                )
        elif not resume:
            raise RunFolderError(
                f"out={str(self.out)!r} already holds a run; resume it (resume=True, --resume), or choose "
                "another folder"
            )

    def _has_only_begun(self) -> bool:
        """Whether there is nothing, or what a run leaves that was killed before it wrote its config."""
        folder = self.checkpoints.folder
        begun = not folder.is_dir() or all(entry.name[:1] == "." for entry in folder.iterdir())
        return begun and all(entry.name[:1] == "." or entry == folder for entry in self.out.iterdir())

    def _remove(self) -> None:
        """Remove what a run has written that learned nothing."""
        for path in (self.config, self.env, self.log, self.timing, self.out / ".lock"):
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # another one has put a file there
            self.checkpoints.folder.rmdir()
            self.out.rmdir()

    def read_run(self) -> Run:
        """The run that the folder holds."""
        if not self.config.exists():
            raise RunFolderError(f"{self.config} is missing, so {self.out} holds no run; train first")
        try:
            return from_json(self.config.read_text(encoding="utf-8"))
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise RunFolderError(
                f"{self.config} cannot be read ({error}); put back the one that was written"
            ) from error

    def _check_same(self, run: Run) -> None:
        if differences := config_differences(self.read_run(), run):
            lines = "; ".join(f"{key} was {was!r}, is now {now!r}" for key, (was, now) in differences.items())
            raise RunFolderError(
                f"{self.out} holds a run with other settings: {lines}. Resume with the same ones, or "
                "choose another folder"
            )


def config_differences(before: Run, after: Run) -> dict[str, tuple[Any, Any]]:
    """Dotted name -> (before, after) of every setting in which two runs differ; None where a method does not have it.

    >>> config_differences(Run(seed=1), Run(seed=2))
    {'seed': (1, 2)}
    """
    old, new = flattened(asdict(before)), flattened(asdict(after))
    pairs = {key: (old.get(key), new.get(key)) for key in (*old, *(key for key in new if key not in old))}
    return {key: (was, now) for key, (was, now) in pairs.items() if json.dumps(was) != json.dumps(now)}
