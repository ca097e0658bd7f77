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
