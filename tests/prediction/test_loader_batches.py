from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from varlearn.prediction.loader_batches import OrderWatch, arguments, check_repeatable, move, outputs_of, split_batch

X, Y = torch.arange(6.0).view(3, 2), torch.tensor([0, 1, 2])


def test_forms_of_a_batch() -> None:
    assert split_batch((X, Y)) == (X, Y)
    assert split_batch([X, Y]) == (X, Y)
    assert split_batch([X]) == (X, None)
    assert split_batch(X)[1] is None
    assert split_batch({"x": X, "labels": Y}) == ({"x": X}, Y)
    assert split_batch({"x": X})[1] is None
    with pytest.raises(ValueError, match="a batch of 3 parts must be"):
        split_batch((X, X, Y))


def test_forms_of_inputs_and_outputs() -> None:
    assert arguments({"x": 1}) == ((), {"x": 1})
    assert arguments([1, 2]) == ((1, 2), {})
    assert outputs_of(SimpleNamespace(logits=5)) == 5
    assert outputs_of((1, 2)) == (1, 2)
    assert outputs_of(X) is X
    moved = move({"a": [X, "text", None]}, torch.device("meta"))
    assert moved["a"][0].device.type == "meta"
    assert moved["a"][1:] == ("text", None)


def test_a_shuffling_loader_is_refused_before_any_work() -> None:
    data = TensorDataset(X, Y)
    with pytest.raises(ValueError, match="its 64 passes would mix up the examples; make it with shuffle=False"):
        check_repeatable(DataLoader(data, shuffle=True), passes=64)
    check_repeatable(DataLoader(data, shuffle=True), passes=1)
    check_repeatable(DataLoader(data, shuffle=False), passes=64)


def watched(*passes: list[tuple[torch.Tensor, torch.Tensor | None]]) -> None:
    watch = OrderWatch()
    for batches in passes:
        for number, (inputs, targets) in enumerate(batches):
            watch.see(number, inputs, targets)
        watch.end_pass()


def test_equal_passes_are_accepted() -> None:
    watched([(X, Y), (X, Y)], [(X, Y), (X, Y)], [(X, Y), (X, Y)])
    watched([(X, None)], [(X, None)])
    nan = torch.tensor([1.0, float("nan")])
    watched([(X, nan)], [(X, nan)])


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ([(X, Y.flip(0))], "batch 0 differs"),
        ([(X, Y[:2])], "batch 0 differs"),
        ([(X, Y), (X, Y)], "batch 1 differs"),
        ([], "gave no batch"),
    ],
)
def test_other_targets_or_lengths_are_refused(second: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        watched([(X, Y)], second)


def test_a_shorter_pass_is_refused() -> None:
    with pytest.raises(ValueError, match="gave 1 batches after 2"):
        watched([(X, Y), (X, Y)], [(X, Y)])


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: (x, 1), lambda x: {"input": x}])
def test_inputs_tell_where_there_are_no_targets(wrap) -> None:
    watched([(wrap(X), None)], [(wrap(X), None)])
    with pytest.raises(ValueError, match="batch 0 differs"):
        watched([(wrap(X), None)], [(wrap(X.flip(0)), None)])
    with pytest.raises(ValueError, match="batch 0 differs"):
        watched([(wrap(X[:, 0]), None)], [(wrap(X[:, 0].flip(0)), None)])
