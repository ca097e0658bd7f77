"""The regression with a gap."""

import pytest
import torch

from varlearn.data import load
from varlearn.data.in_between import CLUSTERS, NOISE, curve, in_between


def test_inputs_lie_in_two_clusters_and_targets_near_the_curve() -> None:
    train, test = in_between("train"), in_between("test")
    for examples, half in ((train, 50), (test, 100)):
        x = examples.inputs[:, 0]
        for (low, high), part in zip(CLUSTERS, (x[:half], x[half:]), strict=True):
            assert low <= part.min()
            assert part.max() <= high
    residual = test.targets - curve(test.inputs[:, 0])
    assert residual.std().item() == pytest.approx(NOISE, rel=0.2)
    assert not torch.equal(train.inputs[:50], test.inputs[:50])
    assert torch.equal(load("in-between", "train").targets, train.targets)
    with pytest.raises(ValueError, match="must be one of train, test"):
        in_between("valid")
