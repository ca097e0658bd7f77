"""PreResNet-110 for small images (He et al., 2016, "Identity mappings"), with filter response normalization."""

from __future__ import annotations

from torch import Tensor, nn

from varlearn.models.frn import FilterResponseNorm
from varlearn.models.layout import channels_last

WIDTHS = (24, 48, 96)
BLOCKS = 18  # in each of the three stages: 1 + 2 * 18 * 3 + 1 = 110 layers


class _Block(nn.Module):
    """Twice FRN, TLU and a 3 x 3 convolution, added to the untouched input or, where its size changes, a projection."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            FilterResponseNorm(inputs),
            nn.Conv2d(inputs, outputs, 3, stride, padding=1),
            FilterResponseNorm(outputs),
            nn.Conv2d(outputs, outputs, 3, padding=1),
        )
        self.shortcut = nn.Identity() if stride == 1 else nn.Conv2d(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return self.shortcut(x) + self.residual(x)


class PreResNet110(nn.Module):
    """Three stages of eighteen blocks, 24, 48 and 96 channels; `preresnet110` builds it."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, WIDTHS[0], 3, padding=1), FilterResponseNorm(WIDTHS[0]))
        blocks, inputs = [], WIDTHS[0]
        for stage, width in enumerate(WIDTHS):
            for block in range(BLOCKS):
                blocks.append(_Block(inputs, width, stride=2 if stage > 0 and block == 0 else 1))
                inputs = width
        self.blocks = nn.Sequential(*blocks)
        self.norm = FilterResponseNorm(inputs)
        self.head = nn.Linear(inputs, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Map images (B, 3, H, W) to logits (B, classes)."""
        features = self.norm(self.blocks(self.stem(images)))  # (B, 96, H/4, W/4)
        return self.head(features.mean(dim=(2, 3)))


def preresnet110(classes: int = 10) -> PreResNet110:
    """Build a PreResNet-110 of width 24 with FRN, 3,899,146 parameters at 10 classes, in the channels_last format.

    Convolutions have biases; the stem is normalized too; the shortcuts of the two strided blocks are bare 1 x 1
    convolutions. The weights start from PyTorch's default.

    Args:
        classes: number of logits.

    >>> import torch
    >>> model = preresnet110(classes=100)
    >>> model(torch.zeros(1, 3, 8, 8)).shape
    torch.Size([1, 100])
    """
    return channels_last(PreResNet110(classes))
