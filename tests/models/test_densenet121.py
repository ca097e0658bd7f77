"""DenseNet-121: its depth, its sizes, its growth, and where its non-linearities stand."""

import torch

from tests.models.structure import depth, features, side
from varlearn.models import densenet121


def test_depth_and_sizes():
    model = densenet121()
    assert depth(model) == 121
    # 24 channels, then 12 a layer, halved between the blocks: 96/2, 192/2, 384/2, 384
    assert model.head.in_features == 384
    assert side(model, 32) == 4


def test_a_layer_adds_twelve_channels_and_keeps_the_others():
    layer = densenet121().blocks[0][0]
    x = torch.randn(2, 24, 6, 6)
    y = layer(x)
    assert y.shape == (2, 36, 6, 6)
    assert torch.equal(y[:, :24], x)


def test_a_transition_halves_everything():
    transition = densenet121().blocks[1]
    assert transition(torch.randn(2, 96, 6, 6)).shape == (2, 48, 3, 3)


def test_relu_before_the_pool():
    cut = features(densenet121(), torch.randn(2, 3, 16, 16), tau=-10)
    assert cut.min() >= 0
