"""ResNet-18: its depth, its sizes, and where its non-linearities stand."""

import torch

from tests.models.structure import depth, features, side
from varlearn.models import resnet18


def test_depth_and_sizes():
    model = resnet18(classes=100)
    assert depth(model) == 18
    assert model.head.weight.shape == (100, 512)
    assert side(model, 32) == 4
    assert side(model, 64) == 8


def test_relu_follows_the_sum():
    # With thresholds far below, the TLUs cut nothing; the ReLU after the sum still does.
    cut = features(resnet18(), torch.randn(2, 3, 16, 16), tau=-10)
    assert cut.min() >= 0


def test_block_by_hand():
    block = resnet18().double().blocks[2]
    x = torch.randn(2, 64, 8, 8, dtype=torch.float64)
    first, second = block.residual
    total = second(first(x)) + block.shortcut(x)
    assert block.shortcut[0].weight.shape == (128, 64, 1, 1)
    torch.testing.assert_close(block(x), total.clamp(min=0))
