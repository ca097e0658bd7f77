import numpy as np
import pytest
import torch

from varlearn.data import corrupt, synthetic
from varlearn.data.corruption import digital
from varlearn.data.seeds import generator


def test_brightness_keeps_hue_and_saturation() -> None:
    import colorsys

    images = torch.rand(1, 3, 6, 6) * 0.6
    images[0, :, 0, 0] = 0.0
    changed = digital.brightness(images, 0.2, generator(0))
    for old, new in zip(images[0].flatten(1).T.tolist(), changed[0].flatten(1).T.tolist(), strict=True):
        h, s, v = colorsys.rgb_to_hsv(*old)
        assert new == pytest.approx(colorsys.hsv_to_rgb(h, s, v + 0.2), abs=1e-5)


def test_contrast_scales_the_deviations() -> None:
    images = torch.rand(3, 3, 8, 8)
    changed = digital.contrast(images, 0.4, generator(0))
    torch.testing.assert_close(changed.mean((2, 3)), images.mean((2, 3)))
    torch.testing.assert_close(changed.std((2, 3)), 0.4 * images.std((2, 3)))


def test_an_elastic_transform_of_size_zero_is_the_identity() -> None:
    images = torch.rand(3, 3, 32, 32)
    torch.testing.assert_close(digital.elastic_transform(images, (0, 0, 0), generator(0)), images, atol=1e-4, rtol=0)


def test_an_affine_transform_is_bounded() -> None:
    """No corner of the inner square moves by more than the affine size in each direction."""
    y, x = torch.meshgrid(torch.arange(32.0), torch.arange(32.0), indexing="ij")
    coordinates = torch.stack([x, y, x]).expand(200, 3, 32, 32)
    moved = digital.elastic_transform(coordinates, (0, 0, 0.05), generator(0))
    for row, column in ((26, 26), (6, 26), (6, 6)):
        shift = (moved - coordinates)[:, :2, row, column]
        assert shift.abs().max() <= 0.05 * 32 + 1e-3
        assert shift.abs().max() > 0.04 * 32


def test_pixelate_leaves_few_values() -> None:
    images = synthetic("cifar10", 3).inputs[:]
    columns = corrupt(images, "pixelate", 5)[0, 0]
    assert len({tuple(column) for column in columns.T.tolist()}) == int(32 * 0.65)


def test_jpeg_is_pillows() -> None:
    import io

    from PIL import Image

    images = synthetic("cifar10", 2).inputs[:]
    buffer = io.BytesIO()
    Image.fromarray(images[1].permute(1, 2, 0).contiguous().numpy()).save(buffer, "JPEG", quality=40)
    expected = torch.from_numpy(np.array(Image.open(buffer))).permute(2, 0, 1)
    assert torch.equal(corrupt(images, "jpeg_compression", 5)[1], expected)
