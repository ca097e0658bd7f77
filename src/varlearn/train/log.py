"""Where the numbers of a run go: always `log.jsonl`, and TensorBoard, trackio or wandb if asked.

`log.jsonl` has no clock in it, so a resumed run's is byte for byte the uninterrupted one's. What depends on the clock
goes to `timing.jsonl`, which is only ever appended to.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from varlearn.files.atomic import writing
from varlearn.files.checked_json import json_line, last_line
from varlearn.train.joined_names import flattened

LOGGERS = ("tensorboard", "trackio", "wandb")


class Logger(Protocol):
    """Something that takes records of a run; each has "step", and numbers, possibly in nested dicts."""

    def write(self, record: Mapping[str, Any]) -> None:
        """Take one record."""
        ...

    def close(self) -> None:
        """Flush what is pending."""
        ...


class JsonLines:
    """One JSON object per line, appended, each with its checksum; `read_json_lines` reads them.

    Args:
        path: of the file.
        keep: bytes of it that are to stay; what follows them is cut off. None keeps all but half a line at the end,
            which a killed writer leaves.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     log = JsonLines(Path(folder, "log.jsonl"))
    ...     log.write({"step": 1, "loss": 0.5})
    ...     position = log.flush()
    ...     log.write({"step": 2, "loss": 0.4})
    ...     log.close()
    ...     JsonLines(Path(folder, "log.jsonl"), keep=position).close()
    ...     print(Path(folder, "log.jsonl").read_text(), end="")
    {"step": 1, "loss": 0.5, "after": "00000000", "crc32": "..."}
    """

    def __init__(self, path: Path, keep: int | None = None) -> None:
        self._path = path
        with writing(path):
            if keep is not None and path.exists() and path.stat().st_size > keep:
                os.truncate(path, keep)
            self._file = open(path, "ab")  # noqa: SIM115
            last = last_line(path)
            if last and not last.endswith(b"\n"):
                os.truncate(path, path.stat().st_size - len(last))
                last = last_line(path)
            self._before = last.decode("utf-8", errors="replace")

    def write(self, record: Mapping[str, Any]) -> None:
        """Append a record; a number that JSON has no word for becomes a string, "nan" or "inf"."""
        line = json_line(_plain(record), self._before)
        with writing(self._path):
            self._file.write(line.encode())
            self._file.flush()
        self._before = line

    def flush(self) -> int:
        """Bring everything to the disk, and return the length of the file in bytes."""
        with writing(self._path):
            os.fsync(self._file.fileno())
            return self._file.seek(0, os.SEEK_END)

    def close(self) -> None:
        """Close the file; `write` has flushed every line, and has said so where it could not."""
        with contextlib.suppress(OSError):
            self._file.close()


def open_logger(name: str, out: Path, config: Mapping[str, Any] | None = None) -> Logger:
    """A logger by name: "tensorboard", "trackio" or "wandb".

    Args:
        name: of the package.
        out: the run's folder; its name is the run's name.
        config: the settings to show beside the curves.

    >>> open_logger("tensorbord", Path("runs/x"))
    Traceback (most recent call last):
    ...
    ValueError: logger 'tensorbord' is unknown; use one of tensorboard, trackio, wandb
    """
    match name:
        case "tensorboard":
            return _TensorBoard(out)
        case "trackio":
            return _Tracker("trackio", out, config)
        case "wandb":
            return _Tracker("wandb", out, config)
    raise ValueError(f"logger {name!r} is unknown; use one of {', '.join(LOGGERS)}")


def numbers_of(record: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a record under joined names, without its step.

    >>> numbers_of({"step": 3, "loss": 0.5, "eval": {"nll": 1}, "note": "x"})
    {'loss': 0.5, 'eval/nll': 1.0}
    """
    values = flattened(record, "/")
    return {name: float(one) for name, one in values.items() if isinstance(one, (int, float)) and name != "step"}


class _TensorBoard:
    """Its folder is made by the first record: a run begins in an empty one."""

    def __init__(self, out: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise _missing("tensorboard") from error
        self._open = lambda: SummaryWriter(str(out / "tensorboard"))
        self._writer: Any = None

    def write(self, record: Mapping[str, Any]) -> None:
        self._writer = self._writer or self._open()
        for name, value in numbers_of(record).items():
            self._writer.add_scalar(name, value, int(record["step"]))

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


class _Tracker:
    """Wandb, and trackio with the same calls. A run is begun there by the first record."""

    def __init__(self, name: str, out: Path, config: Mapping[str, Any] | None) -> None:
        try:
            if name == "wandb":
                import wandb as package  # pyright: ignore[reportMissingImports]
            else:
                import trackio as package  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            raise _missing(name) from error
        self._package = package
        self._open = lambda: package.init(project="varlearn", name=out.name, config=dict(config or {}))
        self._is_open = False

    def write(self, record: Mapping[str, Any]) -> None:
        if not self._is_open:
            self._open()
            self._is_open = True
        self._package.log(numbers_of(record), step=int(record["step"]))

    def close(self) -> None:
        if self._is_open:
            self._package.finish()


def _missing(name: str) -> ImportError:
    return ImportError(f"logger {name!r} needs the package {name}, which is not installed; pip install {name}")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    return value
