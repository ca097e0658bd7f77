"""The LeNet-5 (LeCun et al., 1998) of the approximate inference competition (Wilson et al., 2022)."""

from __future__ import annotations

from torch import nn

from varlearn.models.layout import channels_last


def lenet(classes: int = 7, channels: int = 3) -> nn.Sequential:
    """Build a LeNet-5 with ReLUs for 28 x 28 images, in the channels_last format; the defaults are for MedMNIST.

    Args:
        classes: number of logits.
        channels: of the images: 3 for colour, 1 for grey.

    With one channel and ten classes it has the 61,706 parameters of LeNet-5:

    >>> import torch
    >>> model = lenet(classes=10, channels=1)
    >>> sum(p.numel() for p in model.parameters())
    61706
    >>> model(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 10])
    """
    layers = nn.Sequential(
        nn.Conv2d(channels, 6, 5, padding=2),
        nn.ReLU(),
        nn.AvgPool2d(kernel_size=2),  # (B, 6, 14, 14)
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.AvgPool2d(kernel_size=2),  # (B, 16, 5, 5)
        nn.Flatten(),
        nn.Linear(400, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, classes),
    )
    return channels_last(layers)
