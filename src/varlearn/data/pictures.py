"""Decode a picture to a square of pixels."""

from __future__ import annotations

import io

import numpy as np
import torch
from torch import Tensor

from varlearn.data.errors import CorruptDataError


def picture(raw: bytes, size: int, source: str) -> Tensor:
    """The centre square of a picture, resized by bilinear interpolation: uint8 (3, size, size).

    Args:
        raw: the file's bytes, in any format that Pillow knows.
        size: side in pixels.
        source: where the bytes come from, for messages.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(raw)) as file:
            image = file.convert("RGB")
    except (OSError, SyntaxError) as error:
        cause = "no format of Pillow fits its bytes" if isinstance(error, UnidentifiedImageError) else str(error)
        raise CorruptDataError(f"{source} must be a picture, but {cause}; put the original there") from error
    width, height = image.size
    if (width, height) != (size, size):
        side = min(width, height)
        left, top = (width - side) // 2, (height - side) // 2
        image = image.crop((left, top, left + side, top + side)).resize((size, size), Image.Resampling.BILINEAR)
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()
