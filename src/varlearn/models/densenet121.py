"""DenseNet-121 for small images (Huang et al., 2017), with filter response normalization."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from varlearn.models.frn import FilterResponseNorm
from varlearn.models.layout import channels_last

BLOCKS = (6, 12, 24, 16)  # layers, of two convolutions each: 1 + 2 * 58 + 3 transitions + 1 = 121 layers
GROWTH = 12  # channels that a layer adds
REDUCTION = 0.5  # share of the channels that a transition keeps


class _Layer(nn.Module):
    """A 1 x 1 convolution to 4 GROWTH channels and a 3 x 3 one to GROWTH; the result joins the input's channels."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.new = nn.Sequential(
            FilterResponseNorm(inputs),
            nn.Conv2d(inputs, 4 * GROWTH, 1, bias=False),
            FilterResponseNorm(4 * GROWTH),
            nn.Conv2d(4 * GROWTH, GROWTH, 3, padding=1, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat((x, self.new(x)), dim=1)


def _transition(inputs: int, outputs: int) -> nn.Sequential:
    """Fewer channels by a 1 x 1 convolution, half the height and width by averaging."""
    return nn.Sequential(
        FilterResponseNorm(inputs), nn.Conv2d(inputs, outputs, 1, bias=False), nn.AvgPool2d(kernel_size=2)
    )


class DenseNet121(nn.Module):
    """Four dense blocks of 6, 12, 24 and 16 layers; `densenet121` builds it."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        channels = 2 * GROWTH
        self.stem = nn.Conv2d(3, channels, 3, padding=1, bias=False)
        stages: list[nn.Module] = []
        for layers in BLOCKS:
            if stages:
                stages.append(_transition(channels, int(channels * REDUCTION)))
                channels = int(channels * REDUCTION)
            stages.append(nn.Sequential(*(_Layer(channels + GROWTH * layer) for layer in range(layers))))
            channels += GROWTH * layers
        self.blocks = nn.Sequential(*stages)
        self.norm = FilterResponseNorm(channels)
        self.head = nn.Linear(channels, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Map images (B, 3, H, W) to logits (B, classes)."""
        features = relu(self.norm(self.blocks(self.stem(images))))  # (B, 384, H/8, W/8)
        return self.head(features.mean(dim=(2, 3)))


def densenet121(classes: int = 10) -> DenseNet121:
    """Build a DenseNet-121 of growth 12 with FRN, 1,016,278 parameters at 10 classes, in the channels_last format.

    Convolutions have no bias, the stem is one 3 x 3 convolution to 24 channels, each transition halves the channels,
    and a ReLU follows the last TLU. The weights start from PyTorch's default.

    Args:
        classes: number of logits.

    >>> model = densenet121(classes=10)
    >>> model(torch.zeros(1, 3, 16, 16)).shape
    torch.Size([1, 10])
    """
    return channels_last(DenseNet121(classes))
