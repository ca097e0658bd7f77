"""NumPy arrays and data frames in batches give what the same numbers give as tensors."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, SubsetRandomSampler, TensorDataset

import varlearn
from tests.fitting.small_data import classes, network, numbers
from varlearn.fitting.array_inputs import as_tensors
from varlearn.optim.loader_facts import loader_facts

FEW = {"samples": 4, "progress": False}
X, Y = classes(40)


@pytest.mark.parametrize("kind", [np.asarray, pd.DataFrame])
def test_arrays_and_frames_fit_as_tensors_do(kind: type) -> None:
    rows, labels = kind(X.double().numpy()), kind(Y.numpy())
    labels = labels[0] if isinstance(labels, pd.DataFrame) else labels
    batches = [(rows[:20], labels[:20]), (rows[20:], labels[20:])]
    fitted = varlearn.fit(network(), batches, 5, batches, **FEW)
    tensors = [(X[:20], Y[:20]), (X[20:], Y[20:])]
    same = varlearn.fit(network(), tensors, 5, tensors, **FEW)
    expected = same.predict(X).log_probs
    assert torch.equal(fitted.predict(X).log_probs, expected)
    assert torch.equal(fitted.predict(rows).log_probs, expected)
    assert fitted.score((rows, labels)) == same.score(tensors)


def test_a_frame_of_several_types_and_read_only_arrays() -> None:
    frame = pd.DataFrame({"a": [1, 2], "b": pd.Series([0.5, None], dtype="Float64"), "c": [True, False]})
    found = as_tensors(frame.fillna(0.0), torch.float32)
    assert found.tolist() == [[1.0, 0.5, 1.0], [2.0, 0.0, 0.0]]
    fixed = np.ones(2)
    fixed.flags.writeable = False
    assert as_tensors({"x": [fixed, "kept"]}, torch.float64)["x"][0].dtype == torch.float64


def test_the_targets_of_a_regression_may_be_a_column() -> None:
    inputs, targets = numbers(200)
    frame = pd.DataFrame({"x": inputs[:, 0].numpy(), "y": targets.double().numpy()})
    fitted = varlearn.fit(network(1, 1), [(frame[["x"]], frame["y"])], 5, **FEW)
    assert fitted.predict(frame[["x"]]).mean.shape == (200, 1)
    with pytest.raises(ValueError, match="200 inputs and 100 targets; give one target per input"):
        fitted.score((frame[["x"]], frame["y"][:100]))


def test_a_stream_and_a_subset_are_counted_by_what_they_give() -> None:
    class Stream(IterableDataset):
        def __iter__(self):
            return zip(X, Y, strict=True)

    stream = varlearn.fit(network(), DataLoader(Stream(), batch_size=8), 2, **FEW)
    assert (stream.predictor.look.n, stream.run.train.epochs) == (40, 2)
    part = DataLoader(TensorDataset(X, Y), batch_size=5, sampler=SubsetRandomSampler(range(20)))
    assert varlearn.fit(network(), part, 2, **FEW).predictor.look.n == 20
    assert loader_facts(part, 2) == {"n": 20, "batch_size": 5, "steps": 8}
