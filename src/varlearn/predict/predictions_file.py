"""Predictions as safetensors files: one tensor per attribute, the kind and the seed in the metadata."""

from __future__ import annotations

import os
from dataclasses import fields
from typing import Any

from torch import Tensor

from varlearn.files import sealed
from varlearn.predict.classifier import Predictions
from varlearn.predict.language_model import TokenPredictions
from varlearn.predict.regressor import RegressionPredictions

FORMAT = "varlearn.predictions"
FORMAT_VERSION = 1
_KINDS = {kind.__name__: kind for kind in (Predictions, RegressionPredictions, TokenPredictions)}

AnyPredictions = Predictions | RegressionPredictions | TokenPredictions


def save_predictions(predictions: AnyPredictions, path: str | os.PathLike[str]) -> None:
    """Write predictions to `path`, by custom "predictions.safetensors", atomically and with a checksum.

    >>> import tempfile, torch
    >>> p = Predictions(torch.zeros(1, 1), None, torch.zeros(1), torch.ones(1), seed=3)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_predictions(p, f"{folder}/predictions.safetensors")
    ...     load_predictions(f"{folder}/predictions.safetensors").seed
    3
    """
    values = {field.name: getattr(predictions, field.name) for field in fields(predictions)}
    tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
    metadata = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "kind": type(predictions).__name__,
        "seed": predictions.seed,
    }
    sealed.write(path, tensors, metadata)


def load_predictions(path: str | os.PathLike[str]) -> Any:
    """Read predictions back, bit for bit, as the type that was saved.

    Raises:
        CorruptFileError: if a bit of the file has changed.
        ValueError: if the file holds something else, or is of a later version.
    """
    tensors, metadata = sealed.read(path)
    if metadata.get("format") != FORMAT or metadata["kind"] not in _KINDS:
        raise ValueError(
            f"{path} has format {metadata.get('format')!r}, not {FORMAT!r}; give a file that save_predictions() wrote"
        )
    if metadata["format_version"] != FORMAT_VERSION:
        raise ValueError(
            f"{path} has format_version {metadata['format_version']}; this varlearn reads {FORMAT_VERSION}, update it"
        )
    kind = _KINDS[metadata["kind"]]
    absent = {field.name: None for field in fields(kind) if field.name not in tensors}
    return kind(**{**absent, **tensors, "seed": metadata["seed"]})
