"""Noise: Gaussian, Poisson, and single pixels that fail. Images are float (N, C, H, W) in [0, 1]."""

from __future__ import annotations

import torch
from torch import Tensor


def gaussian_noise(images: Tensor, std: float, source: torch.Generator) -> Tensor:
    """x + std z with z ~ N(0, 1)."""
    return images + std * torch.randn(images.shape, generator=source)


def shot_noise(images: Tensor, photons: float, source: torch.Generator) -> Tensor:
    """Poisson(photons x) / photons: counting light."""
    return torch.poisson(images * photons, generator=source) / photons


def impulse_noise(images: Tensor, amount: float, source: torch.Generator) -> Tensor:
    """Set a share `amount` of the values to 0 or 1, half each."""
    draw = torch.rand(images.shape, generator=source)
    return images.masked_fill(draw < amount / 2, 0.0).masked_fill(draw > 1 - amount / 2, 1.0)
