"""Small images as PNG files, without a further package."""

from __future__ import annotations

import struct
import zlib

from torch import Tensor

_COLOR_TYPES = {1: 0, 3: 2}  # channels -> PNG's number for gray and for RGB


def png(pixels: Tensor) -> bytes:
    r"""An image as the bytes of a PNG file.

    Args:
        pixels: uint8, shape (C, H, W) with 1 or 3 channels.

    >>> import torch
    >>> png(torch.zeros(1, 2, 3, dtype=torch.uint8))[:8]
    b'\x89PNG\r\n\x1a\n'
    """
    channels, height, width = pixels.shape
    if channels not in _COLOR_TYPES:
        raise ValueError(f"an image of {channels} channels cannot be a PNG; give 1 (gray) or 3 (RGB)")
    lines = pixels.permute(1, 2, 0).reshape(height, width * channels).contiguous()
    raw = b"".join(b"\0" + bytes(line.tolist()) for line in lines)  # 0: the line is stored without a filter
    header = struct.pack(">2I5B", width, height, 8, _COLOR_TYPES[channels], 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(raw, 9)) + _chunk(b"IEND", b"")
    )


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
