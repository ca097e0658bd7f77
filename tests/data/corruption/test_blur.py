import math

import numpy as np
import pytest
import torch
from scipy import ndimage

from varlearn.data.corruption import blur
from varlearn.data.seeds import generator


def test_gaussian_blur_is_scipys() -> None:
    images = torch.rand(2, 3, 20, 20)
    expected = ndimage.gaussian_filter(images.numpy(), (0, 0, 0.8, 0.8), mode="nearest")
    np.testing.assert_allclose(blur.gaussian_blur(images, 0.8), expected, atol=1e-5)


def test_defocus_spreads_a_point_over_a_disk() -> None:
    point = torch.zeros(1, 1, 21, 21)
    point[0, 0, 10, 10] = 1.0
    spread = blur.defocus_blur(point, (1.5, 0.1), generator(0))[0, 0]
    y, x = torch.meshgrid(torch.arange(21) - 10, torch.arange(21) - 10, indexing="ij")
    torch.testing.assert_close(spread, ((x**2 + y**2) <= 2.25).float() / 9, atol=1e-6, rtol=0)


def test_motion_smears_along_its_direction() -> None:
    point = torch.zeros(1, 1, 21, 21)
    point[0, 0, 10, 10] = 1.0
    line = blur.smeared(point, 3, 2.0, torch.zeros(1))[0, 0]
    weights = torch.exp(-0.5 * (torch.arange(7) / 2.0) ** 2)
    torch.testing.assert_close(line[10, 4:11].flip(0), weights / weights.sum())
    assert line.sum().item() == pytest.approx(1)
    column = blur.smeared(point, 3, 2.0, torch.full((1,), math.pi / 2))[0, 0]
    torch.testing.assert_close(column, line.T)


def test_glass_moves_pixels_by_one_at_most() -> None:
    image = torch.arange(32 * 32.0).view(1, 1, 32, 32).repeat(50, 1, 1, 1)
    moved = blur.glass_blur(image, (0.05, 1), generator(0))
    offsets = (image - moved).unique().tolist()
    assert offsets == [0, 1, 32, 33]
    assert torch.equal(moved[:, :, :2], image[:, :, :2])


def test_zoom_magnifies_about_the_centre() -> None:
    ramp = torch.linspace(-1, 1, 33).expand(1, 1, 33, 33)
    torch.testing.assert_close(blur.zoomed(ramp, 2.0), ramp / 2)
    torch.testing.assert_close(blur.zoomed(ramp, 1.0), ramp)
