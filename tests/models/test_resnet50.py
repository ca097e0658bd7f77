"""ResNet-50: its depth, its sizes, and where its non-linearities stand."""

import torch
from torch import nn

from tests.models.structure import depth, features, side
from varlearn.models import FilterResponseNorm, resnet50


def test_depth_and_sizes():
    with torch.device("meta"):
        model = resnet50()
    assert depth(model) == 50
    assert model.head.weight.shape == (1000, 2048)
    assert side(model, 224) == 7


def test_tlu_is_the_only_nonlinearity():
    model = resnet50(classes=10)
    kinds = {type(module) for module in model.modules() if not list(module.children())}
    assert kinds == {nn.Conv2d, FilterResponseNorm, nn.Identity, nn.MaxPool2d, nn.Linear}
    assert features(model, torch.randn(1, 3, 64, 64), tau=-10).min() < 0


def test_shortcuts_are_projected_where_a_stage_begins():
    with torch.device("meta"):
        model = resnet50()
    projected = [index for index, block in enumerate(model.blocks) if not isinstance(block.shortcut, nn.Identity)]
    assert projected == [0, 3, 7, 13]
