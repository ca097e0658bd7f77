"""A convolutional network for a first try on small images: seconds on one core."""

from __future__ import annotations

from torch import nn

from varlearn.models.layout import channels_last


def small_cnn(classes: int = 10, channels: int = 1) -> nn.Sequential:
    """Build two convolutions and two linear layers with ReLUs, for images of at least 4 x 4, in channels_last.

    Args:
        classes: number of logits.
        channels: of the images: 3 for colour, 1 for grey.

    160 + 4,640 + 512 * 64 + 64 + 64 * 10 + 10 parameters:

    >>> import torch
    >>> model = small_cnn()
    >>> sum(p.numel() for p in model.parameters())
    38282
    >>> model(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 10])
    """
    layers = nn.Sequential(
        nn.Conv2d(channels, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveMaxPool2d(4),  # (B, 32, 4, 4)
        nn.Flatten(),
        nn.Linear(512, 64),
        nn.ReLU(),
        nn.Linear(64, classes),
    )
    return channels_last(layers)
