from collections.abc import Callable
from pathlib import Path

import pytest

from varlearn.data import pack as parts
from varlearn.data.errors import MissingDataError
from varlearn.data.examples import Examples, pixel_statistics


@pytest.mark.parametrize(
    ("read", "n", "classes"),
    [(parts.flowers102_pack, 5000, 102), (parts.tinyimagenet_pack, 5000, 200), (parts.cifar100_pack, 2033, 100)],
)
def test_parts_of_sets(pack: Path, read: Callable[..., Examples], n: int, classes: int) -> None:
    test = read("test", pack)
    assert test.inputs.shape == (n, 3, 32, 32)
    assert len(test.targets.unique()) == len(test.classes) == classes
    assert test.mean == pixel_statistics(test.inputs[:])[0]


def test_svhn_without_labels(pack: Path) -> None:
    test = parts.svhn_pack("test", pack)
    assert (len(test), test.classes, test.targets.sum()) == (55, ("unlabelled",), 0)


def test_a_part_has_one_split_and_is_not_downloaded(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="split='train' must be one of test"):
        parts.cifar100_pack("train", tmp_path)
    with pytest.raises(MissingDataError, match=r"ood32/labels.npz is in none of"):
        parts.cifar100_pack("test", tmp_path)
