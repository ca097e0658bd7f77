"""Random flips and crops of a whole batch of images at once."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from varlearn.data.seeds import generator


def padding(height: int, width: int) -> int:
    """Pixels by which a crop may be off: an eighth of the shorter side, so 4 of 32 and 8 of 64.

    >>> padding(32, 32), padding(64, 64), padding(8, 8)
    (4, 8, 1)
    """
    return min(height, width) // 8


def draw(n: int, pad: int, mirror: bool, *, seed: int, epoch: int) -> Tensor:
    """What happens to each of n images in an epoch: (flip, top, left), shape (n, 3).

    Args:
        n: number of images in the split; row i belongs to image i whatever batch or process it is served in.
        pad: top and left are drawn from 0 .. 2 pad.
        mirror: draw flips; 0 otherwise.
        seed: of the run.
        epoch: number of the epoch.

    >>> draw(4, 0, False, seed=0, epoch=0)
    tensor([[0, 0, 0],
            [0, 0, 0],
            [0, 0, 0],
            [0, 0, 0]])
    """
    source = generator(seed, "augment", epoch)
    flip = torch.randint(0, 2, (n, 1), generator=source) * int(mirror)
    return torch.cat([flip, torch.randint(0, 2 * pad + 1, (n, 2), generator=source)], dim=1)


def flip_crop(images: Tensor, choices: Tensor, pad: int) -> Tensor:
    """Pad images with zeros, cut the original size out of them, and mirror some.

    One gather moves each pixel once, in the images' own dtype.

    Args:
        images: (B, C, H, W).
        choices: (B, 3) from `draw`: whether to flip, and the crop's top and left corner in the padded image.
        pad: rows and columns of zeros on each side.

    >>> image = torch.tensor([[[[1, 2], [3, 4]]]])
    >>> flip_crop(image, torch.tensor([[1, 0, 0]]), pad=0)
    tensor([[[[2, 1],
              [4, 3]]]])
    >>> flip_crop(image, torch.tensor([[0, 0, 1]]), pad=1)
    tensor([[[[0, 0],
              [1, 2]]]])
    """
    batch, channels, height, width = images.shape
    padded = F.pad(images, (pad, pad, pad, pad))
    flip, top, left = choices.unbind(1)
    rows = torch.arange(height) + top[:, None]  # (B, H)
    columns = torch.arange(width).expand(batch, width)
    columns = torch.where(flip[:, None] == 1, width - 1 - columns, columns) + left[:, None]  # (B, W)
    index = rows[:, :, None] * (width + 2 * pad) + columns[:, None, :]  # (B, H, W)
    index = index.view(batch, 1, -1).expand(batch, channels, -1)
    return padded.view(batch, channels, -1).gather(2, index).view(images.shape)
