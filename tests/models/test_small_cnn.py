"""The small convolutional network: the sizes between its layers."""

import torch
from torch import nn

from varlearn.models import small_cnn


def test_sizes_between_the_layers_do_not_depend_on_the_image() -> None:
    for side in (8, 28):
        x, shapes = torch.randn(1, 3, side, side), []
        for layer in small_cnn(classes=7, channels=3):
            x = layer(x)
            if isinstance(layer, nn.Conv2d | nn.AdaptiveMaxPool2d | nn.Linear):
                shapes.append(tuple(x.shape[1:]))
        assert shapes == [(16, side, side), (32, side, side), (32, 4, 4), (64,), (7,)]
