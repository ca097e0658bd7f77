import pytest
import torch

from varlearn.data import digits
from varlearn.data.examples import pixel_statistics


def test_digits() -> None:
    from sklearn.datasets import load_digits

    train, test = digits.digits("train"), digits.digits("test")
    together = torch.cat([train.inputs[:], test.inputs[:]]).float() / 255 * 16
    original = torch.tensor(load_digits().data).view(-1, 1, 8, 8)
    assert sorted(together.round().flatten(1).tolist()) == sorted(original.flatten(1).tolist())
    mean, std = pixel_statistics(train.inputs[:])
    assert (mean[0], std[0]) == pytest.approx((train.mean[0], train.std[0]), abs=5e-5)


def test_strange_images_are_made_of_the_test_images() -> None:
    """The sets "digits-upside-down" and "digits-noise"."""
    test, turned, noise = digits.digits("test"), digits.upside_down("test"), digits.noise("test")
    assert torch.equal(turned.inputs[0, 0, 0], test.inputs[0, 0, 7])  # type: ignore[index]
    for strange in (turned, noise):
        assert torch.equal(torch.bincount(strange.inputs[:].flatten()), torch.bincount(test.inputs[:].flatten()))
        assert not torch.equal(strange.inputs[:], test.inputs[:])
        assert (strange.mean, strange.std) == (test.mean, test.std)
        with pytest.raises(ValueError, match="train"):
            (digits.upside_down if strange is turned else digits.noise)("train")
