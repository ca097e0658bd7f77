"""ResNet-18 for small images (He et al., 2016), with filter response normalization."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import relu

from varlearn.models.frn import FilterResponseNorm
from varlearn.models.layout import channels_last

WIDTHS = (64, 128, 256, 512)
BLOCKS = 2  # in each of the four stages: 1 + 2 * 2 * 4 + 1 = 18 layers


def _conv(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Sequential:
    """Convolution without bias, then FRN and TLU."""
    conv = nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)
    return nn.Sequential(conv, FilterResponseNorm(outputs))


class _Block(nn.Module):
    """Two 3 x 3 convolutions beside a shortcut, and a ReLU of their sum."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(_conv(inputs, outputs, 3, stride), _conv(outputs, outputs, 3))
        self.shortcut = nn.Identity() if stride == 1 else _conv(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return relu(self.shortcut(x) + self.residual(x))


class ResNet18(nn.Module):
    """Four stages of two blocks, 64 to 512 channels; `resnet18` builds it."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.stem = _conv(3, WIDTHS[0], 3)
        blocks, inputs = [], WIDTHS[0]
        for stage, width in enumerate(WIDTHS):
            for block in range(BLOCKS):
                blocks.append(_Block(inputs, width, stride=2 if stage > 0 and block == 0 else 1))
                inputs = width
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(inputs, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Map images (B, 3, H, W) to logits (B, classes)."""
        features = self.blocks(self.stem(images))  # (B, 512, H/8, W/8)
        return self.head(features.mean(dim=(2, 3)))


def resnet18(classes: int = 10) -> ResNet18:
    """Build a ResNet-18 with FRN, 11,178,762 parameters at 10 classes, in the channels_last format.

    The stem is one 3 x 3 convolution without pooling, as befits 32 x 32 or 64 x 64 pixels. Convolutions have no bias,
    and the shortcuts of the three strided blocks are 1 x 1 convolutions with FRN and TLU. The weights start from
    PyTorch's default.

    Args:
        classes: number of logits.

    >>> import torch
    >>> model = resnet18(classes=200)
    >>> model(torch.zeros(1, 3, 16, 16)).shape
    torch.Size([1, 200])
    """
    return channels_last(ResNet18(classes))
