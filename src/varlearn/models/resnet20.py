"""ResNet-20 for small images (He et al., 2016), with filter response normalization."""

from __future__ import annotations

from torch import Tensor, nn

from varlearn.models.frn import FilterResponseNorm
from varlearn.models.layout import channels_last

WIDTHS = (16, 32, 64)
BLOCKS = 3  # in each of the three stages: 1 + 2 * 3 * 3 + 1 = 20 layers


def _conv(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Sequential:
    """Convolution with bias, then FRN and TLU."""
    conv = nn.Conv2d(inputs, outputs, size, stride, padding=size // 2)
    return nn.Sequential(conv, FilterResponseNorm(outputs))


class _Block(nn.Module):
    """Two 3 x 3 convolutions beside a shortcut; the activation follows the first of them and the sum."""

    def __init__(self, inputs: int, outputs: int, stride: int, activation: nn.Module) -> None:
        super().__init__()
        self.residual = nn.Sequential(_conv(inputs, outputs, 3, stride), activation, _conv(outputs, outputs, 3))
        self.shortcut = nn.Identity() if stride == 1 else _conv(inputs, outputs, 1, stride)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.shortcut(x) + self.residual(x))


class ResNet20(nn.Module):
    """Three stages of three blocks, 16, 32 and 64 channels; `resnet20` and `resnet20_swish` build it."""

    def __init__(self, classes: int, activation: nn.Module) -> None:
        super().__init__()
        self.stem = nn.Sequential(_conv(3, WIDTHS[0], 3), activation)
        blocks, inputs = [], WIDTHS[0]
        for stage, width in enumerate(WIDTHS):
            for block in range(BLOCKS):
                blocks.append(_Block(inputs, width, 2 if stage > 0 and block == 0 else 1, activation))
                inputs = width
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(inputs, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Map images (B, 3, H, W) to logits (B, classes)."""
        features = self.blocks(self.stem(images))  # (B, 64, H/4, W/4)
        return self.head(features.mean(dim=(2, 3)))


def resnet20(classes: int = 10) -> ResNet20:
    """Build a ResNet-20 with FRN, 274,042 parameters at 10 classes, in the channels_last format.

    Convolutions have biases, and the shortcuts of the two strided blocks are 1 x 1 convolutions with FRN and TLU. The
    TLUs are the only non-linearity: nothing follows a sum. The weights start from PyTorch's default.

    Args:
        classes: number of logits.

    >>> import torch
    >>> model = resnet20(classes=10)
    >>> sum(p.numel() for p in model.parameters())
    274042
    >>> model(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """
    return channels_last(ResNet20(classes, nn.Identity()))


def resnet20_swish(classes: int = 10) -> ResNet20:
    """Build the ResNet-20 whose posterior on CIFAR-10 the approximate inference competition sampled by HMC.

    As `resnet20`, with x * sigmoid(x) after the stem, after each block's first convolution and after each sum
    (Izmailov et al., 2021; Wilson et al., 2022).

    Args:
        classes: number of logits.

    >>> sum(p.numel() for p in resnet20_swish().parameters())
    274042
    """
    return channels_last(ResNet20(classes, nn.SiLU()))
