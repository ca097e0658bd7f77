"""Every kind of file that varlearn writes, with a small valid example and the function that reads it back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from varlearn import posterior
from varlearn.files.checked_json import read_json_lines, write_json
from varlearn.files.metrics_file import read_metrics
from varlearn.posterior import DiagGaussian, LowRankGaussian, Mixture, Point
from varlearn.prediction import Predictions, load_predictions, save_predictions
from varlearn.train import Optim, Run, RunFolder, checkpoint, to_json
from varlearn.train.log import JsonLines


class FileKind(NamedTuple):
    """One kind of file.

    Attributes:
        name: as the campaign counts it.
        file: its usual file name.
        write: (path, variant) writes a valid file; variants 0, 1, 2 ... differ.
        load: what the library makes of the file, or one of its documented errors.
    """

    name: str
    file: str
    write: Callable[[Path, int], None]
    load: Callable[[Path], Any]


def weights(variant: int) -> dict[str, Tensor]:
    """Weights of a small network."""
    generator = torch.Generator().manual_seed(variant)
    return {
        name: torch.randn(shape, generator=generator)
        for name, shape in {"0.weight": (3, 4), "0.bias": (3,), "2.weight": (2, 3)}.items()
    }


def _write_checkpoint(path: Path, variant: int) -> None:
    values = weights(variant)
    state = {name: {"momentum": value, "hess": value.abs(), "step": variant} for name, value in values.items()}
    training = {"model": values, "optimizer": {"state": state, "betas": (0.9, 0.99999)}, "order": [3, 1, 2]}
    checkpoint.write(path, {"config": to_json(Run(seed=variant)), "training": training, "best": float("inf")})


def _write_posterior(path: Path, variant: int) -> None:
    mean, other = weights(variant), weights(variant + 1000)
    positive = {name: value.abs() + 0.1 for name, value in other.items()}
    gaussian = DiagGaussian(mean, positive, ess=100.0 + variant, weight_decay=0.01)
    wide = LowRankGaussian(mean, positive, {name: torch.stack([value, -value]) for name, value in other.items()})
    point = Point(mean)
    posterior.save((gaussian, wide, Mixture([gaussian, point]), point)[variant % 4], path)


def _write_predictions(path: Path, variant: int) -> None:
    generator = torch.Generator().manual_seed(variant)
    logits = torch.randn(5, 3, generator=generator).log_softmax(1)
    one = Predictions(logits, torch.arange(5) % 3, torch.rand(5), torch.rand(5), seed=variant)
    if variant % 2:
        save_predictions({"test/mean": one, "test/averaged": one}, path)
    else:
        save_predictions(one, path)


def _write_config(path: Path, variant: int) -> None:
    write_json(path, json.loads(to_json(Run(seed=variant, optim=Optim("ivon", lr=0.1 + variant)))))


def _write_metrics(path: Path, variant: int) -> None:
    scores = {"nll": 0.25 + variant, "accuracy": 0.9, "ece": 0.01}
    write_json(path, {"mean": scores, "averaged": {**scores, "nll": 0.2}, "temperature": 1.0 + variant})


def _write_log(path: Path, variant: int) -> None:
    path.unlink(missing_ok=True)
    log = JsonLines(path)
    for step in range(1, 13):
        log.write({"step": step, "epoch": step // 4, "loss": 1 / (step + variant), "lr": 0.1, "skipped": 0})
    log.close()


KINDS: tuple[FileKind, ...] = (
    FileKind("checkpoint", "step-00000012.safetensors", _write_checkpoint, checkpoint.read),
    FileKind("posterior", "posterior.safetensors", _write_posterior, posterior.load),
    FileKind("predictions", "predictions.safetensors", _write_predictions, load_predictions),
    FileKind("config", "config.json", _write_config, lambda path: RunFolder(path.parent).read_run()),
    FileKind("metrics", "metrics.json", _write_metrics, read_metrics),
    FileKind("log", "log.jsonl", _write_log, read_json_lines),
)
