"""Small files in the published and the prepared formats."""

import hashlib
import io
import lzma
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor


def md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes()).hexdigest()


def write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def write_tar(path: Path, members: dict[str, bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def write_zip(path: Path, members: dict[str, bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def write_sheet(path: Path, images: Tensor) -> Path:
    """Images uint8 (N, 3, 32, 32), N a multiple of 25, as a lossless sheet of 25 a row."""
    rows = images.view(-1, 25, 3, 32, 32).permute(0, 3, 1, 4, 2).reshape(-1, 25 * 32, 3)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(rows.contiguous().numpy()).save(path, lossless=True)
    return path


def write_xz(path: Path, content: str) -> Path:
    return write(path, lzma.compress(content.encode()))


def write_npz(path: Path, **arrays: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **arrays)
    return path


def encoded(image: Tensor, form: str) -> bytes:
    """An image uint8 (3, H, W) in a file format of Pillow's."""
    buffer = io.BytesIO()
    Image.fromarray(image.permute(1, 2, 0).contiguous().numpy()).save(buffer, form)
    return buffer.getvalue()


def random_images(n: int, *shape: int) -> Tensor:
    return torch.randint(0, 256, (n, *shape), dtype=torch.uint8)
