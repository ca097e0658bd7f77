"""Predictions as safetensors files, one or several in a file.

Each has a name in the file: "predictions" if it is alone; "test/mean", "test/averaged" and so on in a run folder.
Tensors are named "<name>/<attribute>". The metadata say what they are: {"format": "varlearn.predictions",
"format_version", "predictions": [{"name", "kind", "seed"}], "sha256"}. Two older formats can be read too: version 1,
which held one, and "varlearn.run_predictions" of run folders.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from torch import Tensor

from varlearn.files import sealed
from varlearn.files.formats import CURE, FileFormatError, check_format, entry, shown
from varlearn.prediction.classifier import Predictions
from varlearn.prediction.language_model import TokenPredictions
from varlearn.prediction.regressor import RegressionPredictions

FORMAT, FORMAT_VERSION = "varlearn.predictions", 2
_OF_RUNS = "varlearn.run_predictions"
_READABLE = {FORMAT: (1, 2), _OF_RUNS: (1,)}
_ALONE = "predictions"
_KINDS = {kind.__name__: kind for kind in (Predictions, RegressionPredictions, TokenPredictions)}
_TASKS = {
    "classification": "Predictions",
    "language": "TokenPredictions",
    "regression": "RegressionPredictions",
}

AnyPredictions = Predictions | RegressionPredictions | TokenPredictions


def save_predictions(predictions: AnyPredictions | Mapping[str, AnyPredictions], path: str | os.PathLike[str]) -> None:
    """Write predictions to `path`, by custom "predictions.safetensors", atomically and with a checksum.

    Args:
        predictions: one, or several by name, e.g. of a test set and of data out of its domain.
        path: where; an existing file is replaced.

    >>> import tempfile, torch
    >>> p = Predictions(torch.zeros(1, 1), None, torch.zeros(1), torch.ones(1), seed=3)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_predictions(p, f"{folder}/predictions.safetensors")
    ...     load_predictions(f"{folder}/predictions.safetensors").seed
    3
    """
    several = predictions if isinstance(predictions, Mapping) else {_ALONE: predictions}
    tensors: dict[str, Tensor] = {}
    described: list[dict[str, Any]] = []
    for name, one in several.items():
        values = {field.name: getattr(one, field.name) for field in fields(one)}
        tensors |= {f"{name}/{key}": value for key, value in values.items() if isinstance(value, Tensor)}
        described.append({"name": name, "kind": type(one).__name__, "seed": one.seed})
    metadata = {"format": FORMAT, "format_version": FORMAT_VERSION, "predictions": described}
    sealed.write(path, tensors, metadata)


def load_predictions(path: str | os.PathLike[str]) -> Any:
    """Read predictions back, bit for bit: the one of the file, or a dict by name where several were saved.

    Raises:
        CorruptFileError: if a bit of the file has changed.
        FileFormatError: if the file holds something else, or is of a later version.
    """
    tensors, metadata = sealed.read(path)
    found: dict[str, AnyPredictions] = {}
    for place, described in enumerate(_described(path, metadata)):
        where = f"metadata['predictions'][{place}]"
        name = entry(path, described, "name", str, where)
        prefix = described.get("prefix", f"{name}/")
        found[name] = _rebuild(
            path,
            where,
            described,
            {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)},
        )
    return found[_ALONE] if set(found) == {_ALONE} else found


def _described(path: str | os.PathLike[str], metadata: Mapping[str, Any]) -> list[Any]:
    """The entries "predictions" of version 2, whatever the version of the file."""
    name, version = check_format(path, metadata, _READABLE, "save_predictions()")
    if name == _OF_RUNS:
        task, seed = entry(path, metadata, "task", str), entry(path, metadata, "seed", int)
        sets = entry(path, metadata, "sets", list)
        names = [f"{one}/{source}" for one in sets for source in ("mean", "averaged")]
        return [{"name": one, "kind": _TASKS.get(task, task), "seed": seed} for one in names]
    if version == 1:
        return [{**metadata, "name": _ALONE, "prefix": ""}]
    return entry(path, metadata, "predictions", list)


def _rebuild(
    path: str | os.PathLike[str], where: str, described: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> AnyPredictions:
    kind, seed = entry(path, described, "kind", str, where), entry(path, described, "seed", int, where)
    if kind not in _KINDS:
        known = ", ".join(_KINDS)
        raise FileFormatError(f"{path}: {where}['kind'] is {shown(kind)} and must be one of {known}; {CURE}")
    attributes = [field for field in fields(_KINDS[kind]) if field.name != "seed"]
    missing = [field.name for field in attributes if field.name not in tensors and field.type == "Tensor"]
    if missing:
        raise FileFormatError(f"{path}: {where} is {kind} and has no tensor {missing[0]!r}; {CURE}")
    values: dict[str, Any] = {field.name: tensors.get(field.name) for field in attributes}
    _check_shapes(path, where, kind, values)
    return _KINDS[kind](**values, seed=seed)


def _check_shapes(path: str | os.PathLike[str], where: str, kind: str, values: Mapping[str, Tensor | None]) -> None:
    """Attributes of the examples have as many rows as there are examples; those of the samples one dimension."""
    main = values["mean" if kind == "RegressionPredictions" else "log_probs"]
    assert main is not None
    least = 2 if kind == "Predictions" else 1
    if main.dim() < least or not main.is_floating_point():
        shape = f"dtype {main.dtype} and shape {tuple(main.shape)}"
        raise FileFormatError(f"{path}: {where} has {shape} and must have {least} dimensions of floats; {CURE}")
    for name, value in values.items():
        if value is None or name.startswith("sample_") or name == "nll_by_samples":
            continue
        if value.dim() == 0 or len(value) != len(main):
            shape = f"shape {tuple(value.shape)}"
            raise FileFormatError(f"{path}: {where} has {name} of {shape} for {len(main)} examples; {CURE}")
