"""Images as files of a folder."""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from torch import Tensor

from varlearn.data.stored_images import StoredImages


@dataclass(frozen=True, eq=False)
class ImageFiles(StoredImages):
    """Image files that are decoded when a batch asks for them.

    Attributes:
        files: one path per image.
        size: side of the decoded square.
    """

    files: tuple[Path, ...]
    size: int = 224

    def __len__(self) -> int:
        """Number of images."""
        return len(self.files)

    def __getitem__(self, index: slice | Tensor) -> ImageFiles:
        """Fewer files, still not decoded."""
        chosen = self.files[index] if isinstance(index, slice) else tuple(self.files[i] for i in index.tolist())
        return replace(self, files=chosen)

    def opened(self, number: int) -> tuple[IO[bytes], str]:
        """An image's file, and its path."""
        path = self.files[number]
        return io.BytesIO(path.read_bytes()), str(path)
