"""Images that stay files until a batch asks for them: for sets larger than memory, such as ImageNet."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from varlearn.data.errors import CorruptDataError
from varlearn.data.seeds import generator


@dataclass(frozen=True, eq=False)
class ImageFiles:
    """Image files that are decoded, cropped and resized when a batch asks for them.

    For evaluation, the shorter side becomes `size * 256 / 224` and the centre is cut out. For training, a crop of 8 to
    100 % of the area and an aspect ratio between 3/4 and 4/3 is resized, and mirrored in one case of two.

    Attributes:
        files: one path per image.
        size: side of the decoded square.
    """

    files: tuple[Path, ...]
    size: int = 224

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(N, 3, size, size)."""
        return len(self.files), 3, self.size, self.size

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: slice | Tensor) -> ImageFiles:
        """Fewer files, still not decoded."""
        chosen = self.files[index] if isinstance(index, slice) else tuple(self.files[i] for i in index.tolist())
        return replace(self, files=chosen)

    def draw(self, mirror: bool, *, seed: int, epoch: int) -> Tensor:
        """What decides each image's crop in an epoch: (flip, area, aspect, top, left), (N, 5) in [0, 1)."""
        choices = torch.rand((len(self), 5), generator=generator(seed, "augment", epoch))
        choices[:, 0] = choices[:, 0].ge(0.5) & mirror
        return choices

    def decode(self, index: Tensor, choices: Tensor | None = None) -> Tensor:
        """The images of the given numbers, uint8 (B, 3, size, size).

        Args:
            index: numbers (B,).
            choices: all rows of `draw` for training; None for the centre.
        """
        with ThreadPoolExecutor(_workers()) as pool:
            return torch.stack(list(pool.map(lambda i: self._one(i, choices), index.tolist())))

    def decode_ahead(self, parts: Sequence[Tensor], choices: Tensor | None) -> Iterator[Tensor]:
        """The images of each batch in turn, the next batch being decoded while the caller uses this one."""
        with ThreadPoolExecutor(_workers()) as pool:
            waiting = []
            for part in [*parts, None]:
                if part is not None:
                    waiting.append([pool.submit(self._one, i, choices) for i in part.tolist()])
                if len(waiting) == 2 or (part is None and waiting):
                    yield torch.stack([image.result() for image in waiting.pop(0)])

    def _one(self, number: int, choices: Tensor | None) -> Tensor:
        import numpy as np
        from PIL import Image

        path = self.files[number]
        try:
            with Image.open(path) as file:
                image = file.convert("RGB")
        except (OSError, SyntaxError) as error:
            raise CorruptDataError(f"{path} must be an image, but {error}; put the original file back") from error
        width, height = image.size
        box = _centre(width, height) if choices is None else _random_box(width, height, choices[number])
        image = image.resize((self.size, self.size), Image.Resampling.BILINEAR, box=box)
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1)  # (3, size, size)
        return pixels.flip(2) if choices is not None and bool(choices[number, 0]) else pixels.contiguous()


def _workers() -> int:
    return min(16, os.cpu_count() or 1)


def _centre(width: int, height: int) -> tuple[float, float, float, float]:
    side = min(width, height) * 224 / 256
    left, top = (width - side) / 2, (height - side) / 2
    return left, top, left + side, top + side


def _random_box(width: int, height: int, choice: Tensor) -> tuple[float, float, float, float]:
    """A box of 8 to 100 % of the area; its sides are clipped to the image's, so every draw gives one."""
    _, area, aspect, top, left = choice.tolist()
    pixels, ratio = width * height * (0.08 + 0.92 * area), (3 / 4) ** (1 - 2 * aspect)
    w, h = min(width, (pixels * ratio) ** 0.5), min(height, (pixels / ratio) ** 0.5)
    x, y = left * (width - w), top * (height - h)
    return x, y, x + w, y + h
