"""A run's folder, read for a report: whatever stages it has gone through."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from varlearn.methods import METHODS
from varlearn.predict import Predictions, load_predictions
from varlearn.predict.predictions_file import AnyPredictions

KINDS = ("mean", "averaged")


@dataclass(frozen=True, eq=False)
class ReadRun:
    """What a run's folder holds; what is not there yet is empty.

    Attributes:
        name: of the folder.
        config: `config.json`.
        env: `env.json`.
        log: the records of `log.jsonl`.
        metrics: `metrics.json`.
        predictions: "SET/KIND" -> what was predicted, e.g. "test/averaged".
    """

    name: str
    config: dict[str, Any]
    env: dict[str, Any]
    log: list[dict[str, Any]]
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
        return tuple(dict.fromkeys(name.split("/")[0] for name in self.predictions if not name.startswith("test/")))

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
    return ReadRun(
        name=path.resolve().name,
        config=_json(path / "config.json"),
        env=_json(path / "env.json"),
        log=_lines(path / "log.jsonl"),
        metrics=_json(path / "metrics.json"),
        predictions=found if isinstance(found, dict) else {},
    )


def _json(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON ({error}); write it again by repeating its stage") from error


def _lines(path: Path) -> list[dict[str, Any]]:
    """The whole records: a run that was killed may have left half a line at the end."""
    if not path.exists():
        return []
    records = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            records.append(json.loads(line))
        except ValueError:
            break
    return records
