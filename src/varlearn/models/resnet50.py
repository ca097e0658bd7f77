"""ResNet-50 for ImageNet (He et al., 2016), with filter response normalization."""

from __future__ import annotations

from torch import Tensor, nn

from varlearn.models.frn import FilterResponseNorm
from varlearn.models.layout import channels_last

WIDTHS = (64, 128, 256, 512)  # inside the bottleneck; four times as many leave it
BLOCKS = (3, 4, 6, 3)  # of three convolutions each: 1 + 3 * 16 + 1 = 50 layers
EXPANSION = 4


def _conv(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Sequential:
    """Convolution without bias, then FRN and TLU."""
    conv = nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)
    return nn.Sequential(conv, FilterResponseNorm(outputs))


class _Bottleneck(nn.Module):
    """1 x 1, 3 x 3 (which carries the stride) and 1 x 1 convolution beside a shortcut; nothing follows the sum."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = EXPANSION * width
        self.residual = nn.Sequential(_conv(inputs, width, 1), _conv(width, width, 3, stride), _conv(width, outputs, 1))
        self.shortcut = nn.Identity() if inputs == outputs else _conv(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return self.shortcut(x) + self.residual(x)


class ResNet50(nn.Module):
    """Four stages of 3, 4, 6 and 3 bottlenecks; `resnet50` builds it."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(_conv(3, WIDTHS[0], 7, stride=2), nn.MaxPool2d(kernel_size=3, stride=2, padding=1))
        blocks, inputs = [], WIDTHS[0]
        for stage, (width, count) in enumerate(zip(WIDTHS, BLOCKS, strict=True)):
            for block in range(count):
                blocks.append(_Bottleneck(inputs, width, stride=2 if stage > 0 and block == 0 else 1))
                inputs = EXPANSION * width
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(inputs, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Map images (B, 3, H, W) to logits (B, classes)."""
        features = self.blocks(self.stem(images))  # (B, 2048, H/32, W/32)
        return self.head(features.mean(dim=(2, 3)))


def resnet50(classes: int = 1000) -> ResNet50:
    """Build a ResNet-50 with FRN, 25,583,592 parameters at 1000 classes, in the channels_last format.

    Convolutions have no bias, the shortcut of each stage's first block is a 1 x 1 convolution with FRN and TLU, and the
    TLUs are the only non-linearity. The weights start from PyTorch's default. Images of 32 x 32 pixels shrink to a
    single position, where FRN keeps signs only: use 64 x 64 or more, 224 x 224 as in the paper.

    Args:
        classes: number of logits.

    >>> import torch
    >>> model = resnet50(classes=10)
    >>> model(torch.zeros(1, 3, 64, 64)).shape
    torch.Size([1, 10])
    """
    return channels_last(ResNet50(classes))
