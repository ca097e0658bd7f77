"""ResNet-20: its depth, its sizes, and where its non-linearities stand."""

import pytest
import torch
from torch import nn

from tests.models.structure import depth, features, side
from varlearn.models import FilterResponseNorm, resnet20, resnet20_swish


def test_depth_and_sizes():
    model = resnet20()
    assert depth(model) == 20
    assert model.head.in_features == 64
    assert side(model, 32) == 8


def test_tlu_is_the_only_nonlinearity():
    model = resnet20()
    kinds = {type(module) for module in model.modules() if not list(module.children())}
    assert kinds == {nn.Conv2d, FilterResponseNorm, nn.Identity, nn.Linear}
    # With thresholds far below, features of either sign leave the last sum: nothing cuts them there.
    assert features(model, torch.randn(4, 3, 16, 16), tau=-10).min() < 0


def test_block_by_hand():
    """x + max(FRN(conv(max(FRN(conv(x)), tau))), tau), from the functions of torch.nn alone."""
    block = resnet20().double().blocks[0]
    x = torch.randn(2, 16, 8, 8, dtype=torch.float64)
    y = x
    for conv, frn in (block.residual[0], block.residual[2]):
        y = nn.functional.conv2d(y, conv.weight, conv.bias, padding=1)
        y = y / (y.pow(2).mean(dim=(2, 3), keepdim=True) + 1e-6).sqrt()
        y = (frn.gamma * y + frn.beta).clamp(min=0)
    torch.testing.assert_close(block(x), x + y)


def test_swish_follows_stem_first_convolution_and_sum():
    model = resnet20_swish().double()
    images = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    x = model.stem[0](images)
    x = x * x.sigmoid()
    torch.testing.assert_close(model.stem(images), x)
    block = model.blocks[0]
    y = block.residual[0](x)
    total = x + block.residual[2](y * y.sigmoid())
    torch.testing.assert_close(block(x), total * total.sigmoid())


@pytest.mark.parametrize("size", [8, 28, 32, 64])
def test_any_image_size(size):
    assert resnet20(classes=3)(torch.randn(1, 3, size, size)).shape == (1, 3)
