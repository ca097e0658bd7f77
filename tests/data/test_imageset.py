import pytest
import torch

from varlearn.data.errors import CorruptDataError
from varlearn.data.imageset import ImageSet

FACTS = ImageSet(("a", "b"), (1, 2, 2), {"train": 3}, (0.5,), (0.5,))


def test_examples_of_the_right_form() -> None:
    examples = FACTS.examples(torch.zeros(3, 1, 2, 2, dtype=torch.uint8), torch.tensor([0, 1, 1]).byte(), "train", "f")
    assert examples.targets.dtype == torch.long
    assert examples.classes == ("a", "b")


@pytest.mark.parametrize(
    ("shape", "dtype", "targets", "message"),
    [
        ((2, 1, 2, 2), torch.uint8, [0, 1, 1], r"f holds train images of shape \(2, 1, 2, 2\)"),
        ((3, 1, 2, 3), torch.uint8, [0, 1, 1], r"not \(3, 1, 2, 2\) uint8"),
        ((3, 1, 2, 2), torch.float32, [0, 1, 1], "torch.float32, not"),
        ((3, 1, 2, 2), torch.uint8, [0, 1], r"f holds \(2,\) labels, not 3"),
        ((3, 1, 2, 2), torch.uint8, [0, 1, 2], r"f has labels 0 .. 2, not 0 .. 1"),
        ((3, 1, 2, 2), torch.uint8, [-1, 1, 1], r"f has labels -1 .. 1, not 0 .. 1"),
    ],
)
def test_anything_else_is_refused(shape: tuple, dtype: torch.dtype, targets: list[int], message: str) -> None:
    with pytest.raises(CorruptDataError, match=message):
        FACTS.examples(torch.zeros(shape, dtype=dtype), torch.tensor(targets), "train", "f")
