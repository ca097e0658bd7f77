"""Weather: snow, frost and fog. Images are float (N, C, H, W) in [0, 1]."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from varlearn.data.corruption.blur import smeared, zoomed

_LUMA = torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)


def plasma(n: int, height: int, width: int, decay: float, source: torch.Generator) -> Tensor:
    """Clouds by the diamond-square algorithm, scaled to [0, 1]: (n, 1, height, width).

    Args:
        n: number of clouds.
        height: in pixels.
        width: in pixels.
        decay: the random displacement shrinks by decay² from one level to the next finer one.
        source: of the displacements.
    """
    side = 2 ** math.ceil(math.log2(max(height, width)))
    field, step, reach = torch.zeros(n, side, side), side, 1.0

    def displaced(total: Tensor) -> Tensor:
        return total / 4 + reach * (2 * torch.rand(total.shape, generator=source) - 1)

    while step >= 2:
        half = step // 2
        corners = field[:, ::step, ::step]
        below, right = corners.roll(-1, 1), corners.roll(-1, 2)
        field[:, half::step, half::step] = displaced(corners + below + right + below.roll(-1, 2))
        centres = field[:, half::step, half::step]
        field[:, ::step, half::step] = displaced(corners + right + centres + centres.roll(1, 1))
        field[:, half::step, ::step] = displaced(corners + below + centres + centres.roll(1, 2))
        step, reach = half, reach / decay**2
    low, high = field.amin((1, 2), keepdim=True), field.amax((1, 2), keepdim=True)
    return ((field - low) / (high - low)).unsqueeze(1)[:, :, :height, :width]


def fog(images: Tensor, level: tuple[float, float], source: torch.Generator) -> Tensor:
    """Add clouds and restore the brightest value: level = (strength, decay of the clouds)."""
    strength, decay = level
    n, _, height, width = images.shape
    brightest = images.amax((1, 2, 3), keepdim=True)
    return (images + strength * plasma(n, height, width, decay, source)) * brightest / (brightest + strength)


def frost(images: Tensor, level: tuple[float, float], source: torch.Generator) -> Tensor:
    """Mix with ice, bluish ridges of clouds: level = (share of the image, share of the ice)."""
    keep, share = level
    n, channels, height, width = images.shape
    ridges = 1 - (2 * plasma(n, height, width, 1.5, source) - 1).abs()  # bright where the clouds are at half height
    tint = torch.tensor([0.85, 0.95, 1.0])[:channels].view(1, channels, 1, 1)
    return keep * images + share * (0.25 + 0.75 * ridges**2) * tint


def snow(images: Tensor, level: tuple[float, ...], source: torch.Generator) -> Tensor:
    """Whiten and let flakes fall.

    Args:
        images: (N, C, H, W).
        level: (mean, std, zoom and threshold of the flakes, radius and std of their smear, share of the image kept).
        source: of the draws.
    """
    mean, std, zoom, threshold, radius, smear, keep = level
    n, channels, height, width = images.shape
    flakes = zoomed(mean + std * torch.randn(n, 1, height, width, generator=source), zoom)
    flakes = flakes.masked_fill(flakes < threshold, 0.0).clamp(0, 1)
    angles = -(0.25 + 0.5 * torch.rand(n, generator=source)) * math.pi  # downwards
    flakes = smeared(flakes, radius, smear, angles)
    grey = (images * _LUMA).sum(1, keepdim=True) if channels == 3 else images
    white = keep * images + (1 - keep) * torch.maximum(images, grey * 1.5 + 0.5)
    return white + flakes + flakes.rot90(2, (2, 3))
