"""Images made worse on purpose: the 15 corruptions of CIFAR-10-C (Hendrycks and Dietterich, 2019) at its 5 severities.

The parameters are the published ones. The random draws are ours, and so are three details: motion blur follows the
description of ImageMagick's, frost is procedural (the published one cuts pieces out of photographs of ice), and blurs
repeat the border. Compare numbers with the literature on the published files (`load("cifar10c", ...)`) alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from varlearn.data.corruption import blur, digital, pixel_noise, weather
from varlearn.data.seeds import generator

_CHUNK = 100  # images worked on at once, and drawn for at once

_SEVERITIES: dict[str, tuple[Callable[..., Tensor], tuple[Any, ...]]] = {
    "gaussian_noise": (pixel_noise.gaussian_noise, (0.04, 0.06, 0.08, 0.09, 0.10)),
    "shot_noise": (pixel_noise.shot_noise, (500, 250, 100, 75, 50)),
    "impulse_noise": (pixel_noise.impulse_noise, (0.01, 0.02, 0.03, 0.05, 0.07)),
    "defocus_blur": (blur.defocus_blur, ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1))),
    "glass_blur": (blur.glass_blur, ((0.05, 1), (0.25, 1), (0.4, 1), (0.25, 2), (0.4, 2))),
    "motion_blur": (blur.motion_blur, ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5))),
    "zoom_blur": (blur.zoom_blur, (6, 11, 16, 21, 26)),
    "snow": (
        weather.snow,
        (
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ),
    ),
    "frost": (weather.frost, ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45))),
    "fog": (weather.fog, ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75))),
    "brightness": (digital.brightness, (0.05, 0.1, 0.15, 0.2, 0.3)),
    "contrast": (digital.contrast, (0.75, 0.5, 0.4, 0.3, 0.15)),
    "elastic_transform": (
        digital.elastic_transform,
        ((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
    ),
    "pixelate": (digital.pixelate, (0.95, 0.9, 0.85, 0.75, 0.65)),
    "jpeg_compression": (digital.jpeg_compression, (80, 65, 58, 50, 40)),
}

CORRUPTIONS: tuple[str, ...] = tuple(_SEVERITIES)
"""The names of the 15 corruptions, in the order of the paper that introduced them."""


def corrupt(images: Tensor, kind: str, severity: int = 3, seed: int = 0) -> Tensor:
    """Corrupt images; the result for one image depends on its number and the arguments, not on how many follow it.

    Args:
        images: uint8 (N, C, H, W), C = 1 or 3.
        kind: one of `CORRUPTIONS`.
        severity: 1 (mild) .. 5.
        seed: of the random draws.

    Returns:
        uint8 (N, C, H, W).

    >>> grey = torch.full((1, 3, 4, 4), 100, dtype=torch.uint8)
    >>> corrupt(grey, "contrast", 5).unique()  # what has no contrast has none to lose
    tensor([100], dtype=torch.uint8)
    >>> corrupt(grey, "brightness", 5).unique()  # 100 + 0.3 * 255, rounded down
    tensor([176], dtype=torch.uint8)
    """
    if kind not in _SEVERITIES:
        raise ValueError(f"kind={kind!r} must be one of {', '.join(CORRUPTIONS)}")
    if severity not in range(1, 6):
        raise ValueError(f"severity={severity} must be 1, 2, 3, 4 or 5")
    if images.dtype != torch.uint8 or images.dim() != 4 or images.shape[1] not in (1, 3):
        raise ValueError(f"images must be uint8 (N, 1 or 3, H, W), not {images.dtype} {tuple(images.shape)}")
    function, levels = _SEVERITIES[kind]
    parts = []
    for number, chunk in enumerate(images.split(_CHUNK)):
        whole = torch.cat([chunk, chunk.new_zeros(_CHUNK - len(chunk), *chunk.shape[1:])])
        source = generator(seed, "corrupt", kind, severity, number)
        result = function(whole.float() / 255, levels[severity - 1], source)[: len(chunk)]
        parts.append(result.clamp(0, 1).mul(255).add(1e-3).to(torch.uint8))  # 1e-3: x / 255 * 255 may end below x
    return torch.cat(parts)
