"""Brightness, contrast, elastic deformation, pixelation and JPEG. Images are float (N, C, H, W) in [0, 1]."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from varlearn.data.corruption.blur import gaussian_blur


def brightness(images: Tensor, shift: float, source: torch.Generator) -> Tensor:
    """Raise the value of each colour, its largest channel, and keep its hue and saturation."""
    value = images.amax(1, keepdim=True)
    raised = (value + shift).clamp(0, 1)
    return torch.where(value > 0, images * (raised / value.clamp(min=1e-8)), raised)


def contrast(images: Tensor, factor: float, source: torch.Generator) -> Tensor:
    """Pull each channel towards its mean over the image."""
    mean = images.mean((2, 3), keepdim=True)
    return (images - mean) * factor + mean


def elastic_transform(images: Tensor, level: tuple[float, float, float], source: torch.Generator) -> Tensor:
    """A random affine map and a smooth random displacement, sampled at once.

    Args:
        images: (N, C, H, W).
        level: (size of the displacement, std of its smoothing, size of the affine map), as parts of the side.
        source: of the draws.
    """
    n, _, height, width = images.shape
    side = min(height, width)
    size, smoothing, affine = (part * side for part in level)
    # three corners of a square of half side `arm`, in pixels from the centre, and where they go
    arm = side // 3
    corners = torch.tensor([[arm, arm, 1.0], [arm, -arm, 1.0], [-arm, -arm, 1.0]])
    moved = corners[:, :2] + affine * (2 * torch.rand(n, 3, 2, generator=source) - 1)
    maps = torch.linalg.solve(corners.expand(n, 3, 3), moved)  # (N, 3, 2): (x, y, 1) -> (x', y')
    y, x = torch.meshgrid(torch.arange(height) - height // 2, torch.arange(width) - width // 2, indexing="ij")
    points = torch.stack([x, y, torch.ones_like(x)], dim=-1).float()  # (H, W, 3)
    points = points.view(1, -1, 3) @ maps  # (N, H W, 2)
    points = points.view(n, height, width, 2)
    if size:
        shifts = 2 * torch.rand(n, 2, height, width, generator=source) - 1
        points = points + size * gaussian_blur(shifts, smoothing).permute(0, 2, 3, 1)
    centre = torch.tensor([width // 2, height // 2])
    grid = (points + centre) * 2 / torch.tensor([width - 1, height - 1]) - 1
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="reflection", align_corners=True)


def pixelate(images: Tensor, share: float, source: torch.Generator) -> Tensor:
    """Shrink to a share of the side and enlarge again, without smoothing."""
    from PIL import Image

    def change(image: Image.Image) -> Image.Image:
        width, height = image.size
        small = image.resize((int(width * share), int(height * share)), Image.Resampling.BOX)
        return small.resize((width, height), Image.Resampling.BOX)

    return _each(images, change)


def jpeg_compression(images: Tensor, quality: int, source: torch.Generator) -> Tensor:
    """Encode as JPEG and decode again."""
    from PIL import Image

    def change(image: Image.Image) -> Image.Image:
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", quality=quality)
        return Image.open(buffer)

    return _each(images, change)


def _each(images: Tensor, change: Callable[[Any], Any]) -> Tensor:
    """Apply a function of Pillow's to each image."""
    from PIL import Image

    pixels = images.mul(255).round().to(torch.uint8).permute(0, 2, 3, 1).numpy()  # (N, H, W, C)
    changed = [np.array(change(Image.fromarray(one.squeeze(-1) if one.shape[-1] == 1 else one))) for one in pixels]
    return torch.from_numpy(np.stack(changed)).view(pixels.shape).permute(0, 3, 1, 2).float() / 255
