"""LeNet-5: the sizes between its layers."""

import torch
from torch import nn

from varlearn.models import lenet


def test_sizes_between_the_layers():
    x, shapes = torch.randn(1, 3, 28, 28), []
    for layer in lenet():
        x = layer(x)
        if isinstance(layer, nn.Conv2d | nn.AvgPool2d | nn.Linear):
            shapes.append(tuple(x.shape[1:]))
    assert shapes == [(6, 28, 28), (6, 14, 14), (16, 10, 10), (16, 5, 5), (120,), (84,), (7,)]
