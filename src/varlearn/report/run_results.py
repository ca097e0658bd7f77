"""A run's folder, read for a report: whatever stages it has gone through."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from varlearn.files.checked_json import Lines, read_json, read_json_lines
from varlearn.files.formats import CorruptFileError
from varlearn.methods import METHODS
from varlearn.prediction import Predictions, load_predictions
from varlearn.prediction.predictions_file import AnyPredictions

KINDS = ("mean", "averaged")


@dataclass(frozen=True, eq=False)
class ReadRun:
    """What a run's folder holds; what is not there yet is empty.

    Attributes:
        name: of the folder.
        config: `config.json`.
        env: `env.json`.
        log: the undamaged records of `log.jsonl`.
        damaged_lines: numbers of the others, counted from 1.
        metrics: `metrics.json`.
        predictions: "SET/KIND" -> what was predicted, e.g. "test/averaged".
    """

    name: str
    config: dict[str, Any]
    env: dict[str, Any]
    log: list[dict[str, Any]]
    damaged_lines: list[int]
    metrics: dict[str, Any]
    predictions: dict[str, AnyPredictions]

    @property
    def method(self) -> str:
        """The name of the method."""
        return str(self.config.get("optim", {}).get("name"))

    @property
    def label(self) -> str:
        """The method as tables write it; its name where this version does not know it."""
        return METHODS[self.method].label if self.method in METHODS else self.method

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of prediction that differ: a point has its mean alone."""
        return KINDS if self.method in METHODS and METHODS[self.method].averages else KINDS[:1]

    @property
    def outside(self) -> tuple[str, ...]:
        """The data sets out of the domain that were predicted."""
        names = dict.fromkeys(name.split("/")[0] for name in self.predictions)
        return tuple(name for name in names if name not in ("test", "validation"))

    def classified(self, kind: str, examples: str = "test") -> tuple[Tensor, Tensor | None] | None:
        """Log-probabilities (N, C) and targets (N,) of a classifier; None of another run, or before predicting."""
        found = self.predictions.get(f"{examples}/{kind}")
        if not isinstance(found, Predictions) or found.log_probs.shape[1] < 2:
            return None
        return found.log_probs, found.targets


def read_run(path: Path) -> ReadRun:
    """Read the folder of a run.

    Raises:
        ValueError: if there is no run, or one of its files cannot be read.
    """
    if not (path / "config.json").is_file():
        raise ValueError(f"{path} holds no run: config.json is missing; give the folder that varlearn train wrote to")
    predictions = path / "predictions.safetensors"
    found = load_predictions(predictions) if predictions.exists() else {}
    lines = path / "log.jsonl"
    log = read_json_lines(lines) if lines.exists() else Lines([], [])
    return ReadRun(
        name=path.resolve().name,
        config=_json(path / "config.json"),
        env=_json(path / "env.json"),
        log=log.records,
        damaged_lines=log.damaged,
        metrics=_json(path / "metrics.json"),
        predictions=found if isinstance(found, dict) else {},
    )


def _json(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        return read_json(path)
    except CorruptFileError as error:
        raise CorruptFileError(f"{error}; its stage writes it again") from error
