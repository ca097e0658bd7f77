"""PNG, read back by Pillow."""

import io

import numpy as np
import pytest
import torch

from varlearn.files.png import png


@pytest.mark.parametrize("channels", [1, 3])
def test_pillow_reads_the_same_pixels(channels: int) -> None:
    Image = pytest.importorskip("PIL.Image")
    pixels = torch.randint(256, (channels, 5, 7), dtype=torch.uint8)
    with Image.open(io.BytesIO(png(pixels))) as image:
        found = torch.from_numpy(np.array(image)).view(5, 7, channels).permute(2, 0, 1)
    assert torch.equal(found, pixels)


def test_other_numbers_of_channels_are_refused() -> None:
    with pytest.raises(ValueError, match=r"2 channels cannot be a PNG; give 1 \(gray\) or 3 \(RGB\)"):
        png(torch.zeros(2, 1, 1, dtype=torch.uint8))
