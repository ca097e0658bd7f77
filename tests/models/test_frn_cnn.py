"""The small network with FRN: the sizes between its layers."""

import torch
from torch import nn

from varlearn.models import FilterResponseNorm, frn_cnn


def test_each_convolution_halves_the_image_and_is_normalized() -> None:
    x, shapes = torch.randn(1, 3, 32, 32), []
    layers = list(frn_cnn(classes=7))
    for layer in layers:
        x = layer(x)
        if isinstance(layer, nn.Conv2d | nn.Linear):
            shapes.append(tuple(x.shape[1:]))
    assert shapes == [(32, 16, 16), (64, 8, 8), (128, 4, 4), (7,)]
    assert [type(layer) for layer in layers[1:6:2]] == [FilterResponseNorm] * 3
