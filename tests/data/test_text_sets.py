from pathlib import Path

import pytest
import torch

from varlearn.data.errors import CorruptDataError
from varlearn.data.text_sets import Texts, labelled, tokenized

TRAIN = Texts(("a a b", "c"), torch.tensor([0, 1]), ("no", "yes"))
TEST = Texts(("a x b a a a", ""), torch.tensor([1, 0]), ("no", "yes"))
PAIRS = Texts(("a", "b"), torch.tensor([0, 1]), ("no", "yes"), ("b b", "a"))


def source(split: str, root: Path | None) -> Texts:
    return {"train": TRAIN, "test": TEST}[split]


def pairs(split: str, root: Path | None) -> Texts:
    return PAIRS


def test_words_of_the_training_split_number_the_test_split() -> None:
    examples = tokenized(source, "test", vocab=10, context=4)
    # 0 fills up, 1 stands between two texts, 2 is any other word, 3 is "a", 4 is "b"
    assert examples.inputs[:].tolist() == [[3, 2, 4, 3], [2, 0, 0, 0]]
    assert examples.vocab == 6
    assert examples.targets.tolist() == [1, 0]
    assert examples.inputs[:].dtype == torch.long


def test_the_vocabulary_is_limited() -> None:
    assert tokenized(source, "train", vocab=4).inputs[:].tolist() == [[3, 3, 2], [2, 0, 0]]
    assert tokenized(source, "train", vocab=4).vocab == 4


def test_bytes() -> None:
    examples = tokenized(source, "train", tokens="bytes")
    assert examples.inputs[1].tolist() == [ord("c") + 2, 0, 0, 0, 0]
    assert examples.vocab == 258


def test_pairs_have_a_border() -> None:
    # "b" is more frequent than "a" over both texts of the pairs
    assert tokenized(pairs, "train", vocab=10).inputs[:].tolist() == [[4, 1, 3, 3], [3, 1, 4, 0]]


def test_context_must_be_positive() -> None:
    with pytest.raises(ValueError, match="context=0 must be >= 1"):
        tokenized(source, "train", context=0)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([["0", "a"]], "f holds 1 texts, not 2"),
        ([["0", "a"], ["x", "b"]], "f has a label that is no number"),
        ([["0", "a"], ["2", "b"]], r"f has labels 0 .. 2, not 0 .. 1"),
    ],
)
def test_tables_are_checked(rows: list[list[str]], message: str) -> None:
    with pytest.raises(CorruptDataError, match=message):
        labelled(rows, ("no", "yes"), 2, "f")
