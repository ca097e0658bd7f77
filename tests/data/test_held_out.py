"""The validation split: disjoint, fixed, of the right size."""

import pytest
import torch

from varlearn.data import Examples, hold_out, load
from varlearn.data.held_out import validation_size


def table(n: int) -> Examples:
    return Examples(torch.arange(float(n)).view(n, 1), torch.arange(float(n)), (), "table")


@pytest.mark.parametrize(("n", "validation", "count"), [(100, 0.1, 10), (100, 37, 37), (10, 0.25, 2), (2, 0.5, 1)])
def test_the_parts_are_disjoint_and_complete(n: int, validation: float, count: int) -> None:
    train, held = hold_out(table(n), validation)
    assert (len(train), len(held)) == (n - count, count)
    assert sorted([*train.targets.tolist(), *held.targets.tolist()]) == list(range(n))
    for part in (train, held):
        assert part.targets.tolist() == sorted(part.targets.tolist())  # in the stored order
        assert torch.equal(part.inputs[:].flatten(), part.targets)


def test_the_choice_is_fixed_and_random() -> None:
    torch.manual_seed(5)
    first = hold_out(table(20), 5)[1].targets.tolist()
    torch.manual_seed(6)
    assert hold_out(table(20), 5)[1].targets.tolist() == first == [7.0, 14.0, 17.0, 18.0, 19.0]
    assert hold_out(table(20), 0.25)[1].targets.tolist() == first


def test_of_a_text_it_is_the_end() -> None:
    text = Examples(torch.arange(100, dtype=torch.uint8), torch.empty(0, dtype=torch.long), (), "tokens", vocab=256)
    train, held = hold_out(text, 0.2)
    assert train.inputs[:].tolist() == list(range(80))
    assert held.inputs[:].tolist() == list(range(80, 100))
    assert held.vocab == 256


@pytest.mark.parametrize("validation", [0, -1, -0.5, 1.5, float("nan")])
def test_what_is_neither_share_nor_number_is_refused(validation: float) -> None:
    with pytest.raises(ValueError, match="must be a share between 0 and 1, or a whole number"):
        validation_size(100, validation)


@pytest.mark.parametrize("validation", [0.001, 100, 101, 0.999])
def test_both_parts_need_an_example(validation: float) -> None:
    with pytest.raises(ValueError, match="each needs at least 1"):
        validation_size(100, validation)


def test_load_holds_out_of_the_training_split() -> None:
    whole = load("digits", "train")
    train, held = (load("digits", split, validation=100) for split in ("train", "validation"))
    assert (len(train), len(held)) == (900, 100)
    assert torch.equal(held.inputs[:], hold_out(whole, 100)[1].inputs[:])
    assert len(load("digits", "test", validation=100)) == 797
    with pytest.raises(ValueError, match="split='validation' of digits needs validation="):
        load("digits", "validation")
