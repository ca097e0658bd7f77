from dataclasses import fields
from pathlib import Path

import pytest
import torch

from varlearn.files import sealed
from varlearn.files.formats import FileFormatError
from varlearn.posterior import CorruptFileError
from varlearn.prediction import (
    Predictions,
    RegressionPredictions,
    TokenPredictions,
    load_predictions,
    save_predictions,
)

LOG_PROBS = torch.randn(4, 3).log_softmax(-1)
ONES = torch.ones(4)
EXAMPLES = [
    Predictions(LOG_PROBS, torch.arange(4), ONES, torch.ones(2) / 2, LOG_PROBS.expand(2, 4, 3), seed=5),
    Predictions(LOG_PROBS, None, ONES, torch.ones(1)),
    RegressionPredictions(ONES, ONES, ONES, ONES, ONES, torch.ones(1), seed=-1),
    RegressionPredictions(ONES, ONES, ONES, None, None, torch.ones(1), torch.ones(1, 4)),
    TokenPredictions(ONES, torch.arange(4), torch.zeros(4, dtype=torch.int64), torch.ones(1), seed=2**63),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "predictions.safetensors"


@pytest.mark.parametrize("predictions", EXAMPLES, ids=lambda p: type(p).__name__)
def test_round_trip(path: Path, predictions) -> None:
    save_predictions(predictions, path)
    again = load_predictions(path)
    assert type(again) is type(predictions)
    for field in fields(predictions):
        wanted, got = getattr(predictions, field.name), getattr(again, field.name)
        if isinstance(wanted, torch.Tensor):
            assert wanted.dtype == got.dtype
            assert torch.equal(wanted, got)
        else:
            assert wanted == got


def test_several_in_one_file_keep_their_names_and_their_order(path: Path) -> None:
    several = {"test/mean": EXAMPLES[0], "test/averaged": EXAMPLES[1], "a": EXAMPLES[2]}
    save_predictions(several, path)
    again = load_predictions(path)
    assert list(again) == list(several)
    for name, wanted in several.items():
        assert type(again[name]) is type(wanted)
        assert again[name].seed == wanted.seed
    assert torch.equal(again["test/mean"].log_probs, LOG_PROBS)
    assert again["test/averaged"].targets is None


def test_damage_and_other_files_are_refused(path: Path) -> None:
    save_predictions(EXAMPLES[0], path)
    data = bytearray(path.read_bytes())
    data[-3] ^= 16
    path.write_bytes(data)
    with pytest.raises(CorruptFileError):
        load_predictions(path)
    sealed.write(path, {}, {"format": "varlearn.posterior"})
    with pytest.raises(ValueError, match="not 'varlearn.predictions'"):
        load_predictions(path)
    sealed.write(path, {}, {"format": "varlearn.predictions", "format_version": 9, "kind": "Predictions"})
    with pytest.raises(ValueError, match="format_version 9"):
        load_predictions(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"log_probs": torch.ones(4)}, "must have 2 dimensions of floats"),
        ({"log_probs": torch.ones(4, 3, dtype=torch.int64)}, "must have 2 dimensions of floats"),
        ({"targets": torch.arange(5)}, r"targets of shape \(5,\) for 4 examples"),
        ({"expected_entropy": torch.tensor(1.0)}, r"expected_entropy of shape \(\) for 4 examples"),
    ],
)
def test_tensors_of_other_shapes_are_refused(path: Path, changes: dict[str, torch.Tensor], message: str) -> None:
    save_predictions(EXAMPLES[0], path)
    tensors, metadata = sealed.read(path)
    sealed.write(path, tensors | {f"predictions/{name}": value for name, value in changes.items()}, metadata)
    with pytest.raises(FileFormatError, match=message):
        load_predictions(path)
