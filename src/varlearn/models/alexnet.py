"""The small AlexNet (Krizhevsky et al., 2012) of the approximate inference competition (Wilson et al., 2022)."""

from __future__ import annotations

from torch import nn

from varlearn.models.layout import channels_last


def _conv2(inputs: int, outputs: int) -> nn.Sequential:
    """2 x 2 convolution and ReLU that keep height and width: one row and one column of zeros are added at the end."""
    return nn.Sequential(nn.ZeroPad2d((0, 1, 0, 1)), nn.Conv2d(inputs, outputs, 2), nn.ReLU())


def alexnet(classes: int = 10) -> nn.Sequential:
    """Build the AlexNet-like net for 32 x 32 colour images, in the channels_last format.

    Args:
        classes: number of logits.

    >>> import torch
    >>> model = alexnet()
    >>> sum(p.numel() for p in model.parameters())
    1488202
    >>> model(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """
    layers = nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(kernel_size=2),  # (B, 64, 16, 16)
        nn.Conv2d(64, 128, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(kernel_size=2),  # (B, 128, 8, 8)
        _conv2(128, 256),
        _conv2(256, 128),
        _conv2(128, 64),
        nn.Flatten(),
        nn.Linear(64 * 8 * 8, 256),
        nn.ReLU(),
        nn.Linear(256, 256),
        nn.ReLU(),
        nn.Linear(256, classes),
    )
    return channels_last(layers)
