"""Undamaged files with malformed metadata: each loader names the file, the entry, the rule and the cure."""

import contextlib
import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.fixtures.v0_1 import cases
from varlearn.files import sealed
from varlearn.files.formats import FileFormatError
from varlearn.posterior import load, save
from varlearn.prediction import load_predictions, save_predictions
from varlearn.train import checkpoint
from varlearn.train.run_errors import RunFolderError

Writer = Callable[[Path], object]
FILES: dict[str, tuple[Writer, Callable[[Path], Any]]] = {
    "posterior": (lambda path: save(cases.posteriors()["diag_gaussian"], path), load),
    "mixture": (lambda path: save(cases.posteriors()["mixture"], path), load),
    "predictions": (lambda path: save_predictions(cases.predictions(), path), load_predictions),
    "checkpoint": (lambda path: checkpoint.write(path, {"step": 1, "net": [torch.ones(2)]}), checkpoint.read),
}
JUNK: list[Any] = [None, True, -1, 2.5, "evil", "x" * 100_000, [], [None], {}, {"": "evil"}, {"a": {"b": None}}]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of each entry of nested metadata."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, item in items for place in [(*path, key), *places(item, (*path, key))]]


def replaced(value: Any, path: tuple[Any, ...], junk: Any) -> Any:
    value = copy.deepcopy(value)
    inner = value
    for key in path[:-1]:
        inner = inner[key]
    if junk is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = junk
    return value


@pytest.mark.parametrize("kind", FILES)
def test_malformed_metadata_is_refused_with_the_name_of_the_file_or_harmless(kind: str, tmp_path: Path) -> None:
    write, read = FILES[kind]
    path = tmp_path / "x.safetensors"
    write(path)
    tensors, metadata = sealed.read(path)
    messages = []
    for place in places(metadata):
        for junk in [*JUNK, ...]:
            sealed.write(path, tensors, replaced(metadata, place, junk))
            with contextlib.suppress(FileFormatError, RunFolderError):  # any other error fails the test
                try:
                    read(path)
                except Exception as error:
                    messages.append(str(error))
                    raise
    assert len(messages) > len(JUNK)
    for message in messages:
        assert message.startswith(str(path))
        assert "; " in message.removeprefix(str(path))  # the cure
        assert len(message) < 1000


@pytest.mark.parametrize("kind", FILES)
def test_missing_tensors_are_refused(kind: str, tmp_path: Path) -> None:
    write, read = FILES[kind]
    path = tmp_path / "x.safetensors"
    write(path)
    _, metadata = sealed.read(path)
    sealed.write(path, {}, metadata)
    with pytest.raises(FileFormatError, match="x.safetensors"):
        read(path)


def test_messages_name_value_rule_and_cure(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    save(cases.posteriors()["point"], path)
    tensors, metadata = sealed.read(path)
    metadata["posterior"]["kind"] = "evil"
    sealed.write(path, tensors, metadata)
    with pytest.raises(FileFormatError, match=r"\['kind'\] is 'evil' and must be one of DiagGaussian, .*; give a file"):
        load(path)
    sealed.write(path, tensors, metadata | {"posterior": None})
    with pytest.raises(FileFormatError, match=r"metadata\['posterior'\] is None and must be of type dict; give a file"):
        load(path)
    sealed.write(path, tensors, {"format": "varlearn.posterior", "format_version": 1})
    with pytest.raises(FileFormatError, match="metadata has no entry 'posterior'"):
        load(path)
