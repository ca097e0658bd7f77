"""The small AlexNet: the sizes between its layers, and where the 2 x 2 convolutions are padded."""

import torch
from torch import nn

from varlearn.models import alexnet


def test_sizes_between_the_layers():
    x, shapes = torch.randn(1, 3, 32, 32), []
    for layer in alexnet():
        x = layer(x)
        if not isinstance(layer, nn.ReLU | nn.Flatten):
            shapes.append(tuple(x.shape[1:]))
    convolutions = [(64, 32, 32), (64, 16, 16), (128, 16, 16), (128, 8, 8), (256, 8, 8), (128, 8, 8), (64, 8, 8)]
    assert shapes == [*convolutions, (256,), (256,), (10,)]


@torch.no_grad()
def test_padding_comes_after_the_last_row_and_column():
    conv2 = alexnet()[6]
    conv = conv2[1]
    conv.weight.zero_()
    conv.bias.zero_()
    conv.weight[0, 0, 1, 1] = 1.0  # output (i, j) is input (i + 1, j + 1)
    x = torch.rand(1, 128, 8, 8)
    out = conv2(x)
    assert torch.equal(out[0, 0, :7, :7], x[0, 0, 1:, 1:])
    assert not out[0, 0, 7].any()
    assert not out[0, 0, :, 7].any()
