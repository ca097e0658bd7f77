"""Blurs. Images are float (N, C, H, W) in [0, 1]; beyond the border its pixels repeat."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F


def filtered(images: Tensor, kernel: Tensor) -> Tensor:
    """Each channel filtered with one kernel (K, K), K odd."""
    n, channels, height, width = images.shape
    pad = kernel.shape[-1] // 2
    flat = F.pad(images.reshape(n * channels, 1, height, width), (pad, pad, pad, pad), mode="replicate")
    return F.conv2d(flat, kernel[None, None]).view(images.shape)


def gaussian_kernel(std: float, radius: int) -> Tensor:
    """A Gaussian on (2 radius + 1)² points, summing to 1.

    >>> gaussian_kernel(1.0, 0)
    tensor([[1.]])
    """
    line = torch.exp(-0.5 * (torch.arange(-radius, radius + 1) / std) ** 2)
    kernel = line[:, None] * line[None, :]
    return kernel / kernel.sum()


def gaussian_blur(images: Tensor, std: float) -> Tensor:
    """Filter with a Gaussian, cut at four standard deviations."""
    radius = int(4 * std + 0.5)
    return filtered(images, gaussian_kernel(std, radius)) if radius else images


def defocus_blur(images: Tensor, level: tuple[float, float], source: torch.Generator) -> Tensor:
    """Filter with a disk of some radius, itself smoothed: level = (radius, standard deviation of the smoothing)."""
    radius, smoothing = level
    reach = torch.arange(-8, 9)
    disk = (reach[:, None] ** 2 + reach[None, :] ** 2 <= radius**2).float()
    disk = filtered((disk / disk.sum())[None, None], gaussian_kernel(smoothing, 1))
    return filtered(images, disk[0, 0])


def glass_blur(images: Tensor, level: tuple[float, int], source: torch.Generator) -> Tensor:
    """Blur, let each pixel take the value of itself or a neighbour up and left, blur: level = (std, repetitions).

    The published description swaps neighbours; the published images copy, and so does this.
    """
    std, repetitions = level
    images = gaussian_blur(images, std)
    n, channels, height, width = images.shape
    for _ in range(repetitions):
        step = torch.randint(0, 2, (2, n, height, width), generator=source)
        step[:, :, :2], step[:, :, :, :2] = 0, 0  # the border stays
        rows = torch.arange(height)[None, :, None] - step[0]
        columns = torch.arange(width)[None, None, :] - step[1]
        index = (rows * width + columns).view(n, 1, -1).expand(n, channels, -1)
        images = images.view(n, channels, -1).gather(2, index).view(images.shape)
    return gaussian_blur(images, std)


def motion_blur(images: Tensor, level: tuple[float, float], source: torch.Generator) -> Tensor:
    """Smear in a direction within 45 degrees of the horizontal: level = (radius, std)."""
    angles = (torch.rand(len(images), generator=source) - 0.5) * (math.pi / 2)
    return smeared(images, *level, angles)


def smeared(images: Tensor, radius: float, std: float, angles: Tensor) -> Tensor:
    """The average of 2 radius + 1 shifted copies with the weights of half a Gaussian.

    Args:
        images: (N, C, H, W).
        radius: pixels.
        std: pixels, of the Gaussian.
        angles: direction of each image's shifts (N,), radians from the horizontal.
    """
    n, channels, height, width = images.shape
    steps = torch.arange(2 * int(radius) + 1)
    weights = torch.exp(-0.5 * (steps / std) ** 2)
    weights = weights / weights.sum()
    flat, out = images.reshape(n, channels, -1), torch.zeros(n, channels, height * width)
    for step, weight in zip(steps.tolist(), weights.tolist(), strict=True):
        down, right = (step * angles.sin()).round().long(), (step * angles.cos()).round().long()
        rows = (torch.arange(height) + down[:, None]).clamp(0, height - 1)
        columns = (torch.arange(width) + right[:, None]).clamp(0, width - 1)
        index = (rows[:, :, None] * width + columns[:, None, :]).view(n, 1, -1).expand(n, channels, -1)
        out.add_(flat.gather(2, index), alpha=weight)
    return out.view(images.shape)


def zoom_blur(images: Tensor, steps: int, source: torch.Generator) -> Tensor:
    """The average of the image and of zooms by 1, 1.01, 1.02, ...: `steps` of them."""
    out = images.clone()
    for step in range(steps):
        out += zoomed(images, 1 + step / 100)
    return out / (steps + 1)


def zoomed(images: Tensor, factor: float) -> Tensor:
    """The images' centres, magnified by a factor, at the images' size."""
    theta = torch.tensor([[1 / factor, 0, 0], [0, 1 / factor, 0]]).expand(len(images), 2, 3)
    grid = F.affine_grid(theta, list(images.shape), align_corners=True)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=True)
