"""PreResNet-110: its depth, its sizes, its clean shortcuts, and where its non-linearities stand."""

import torch
from torch import nn

from tests.models.structure import depth, features, side
from varlearn.models import FilterResponseNorm, preresnet110


def test_depth_and_sizes():
    model = preresnet110(classes=200)
    assert depth(model) == 110
    assert model.head.weight.shape == (200, 96)
    assert [block.residual[1].out_channels for block in model.blocks] == 18 * [24] + 18 * [48] + 18 * [96]
    assert side(model, 32) == 8


def test_tlu_is_the_only_nonlinearity():
    model = preresnet110()
    kinds = {type(module) for module in model.modules() if not list(module.children())}
    assert kinds == {nn.Conv2d, FilterResponseNorm, nn.Identity, nn.Linear}
    assert features(model, torch.randn(2, 3, 16, 16), tau=-10).min() < 0


def test_shortcuts_are_linear():
    model = preresnet110()
    x = torch.randn(2, 24, 8, 8)
    kept, projected = model.blocks[1].shortcut, model.blocks[18].shortcut
    assert torch.equal(kept(x), x)
    torch.testing.assert_close(projected(2 * x), 2 * projected(x) - projected(torch.zeros_like(x)))


def test_block_normalizes_before_each_convolution():
    block = preresnet110().double().blocks[1]
    x = torch.randn(2, 24, 8, 8, dtype=torch.float64)
    first, conv1, second, conv2 = block.residual
    torch.testing.assert_close(block(x), x + conv2(second(conv1(first(x)))))
    assert isinstance(first, FilterResponseNorm)
    assert isinstance(second, FilterResponseNorm)
