"""Images that stay where they are stored until a batch asks for them: for sets larger than memory, such as ImageNet."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any

import torch
from torch import Tensor

from varlearn.data import image_loaders
from varlearn.data.errors import CorruptDataError
from varlearn.data.seeds import generator


class StoredImages:
    """Images that are decoded, cropped and resized when a batch asks for them.

    For evaluation, the shorter side becomes `size * 256 / 224` and the centre is cut out. For training, a crop of 8 to
    100 % of the area and an aspect ratio between 3/4 and 4/3 is resized, and mirrored in one case of two.

    A subclass says where the images are: `opened`, `__len__` and `__getitem__`.

    Attributes:
        size: side of the decoded square.
    """

    size: int

    @abstractmethod
    def __len__(self) -> int:
        """Number of images."""

    @abstractmethod
    def __getitem__(self, index: slice | Tensor) -> StoredImages:
        """Fewer images, still not decoded."""

    @abstractmethod
    def opened(self, number: int) -> tuple[IO[bytes], str]:
        """An image's file, and its name for messages."""

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(N, 3, size, size)."""
        return len(self), 3, self.size, self.size

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
        with ThreadPoolExecutor(image_loaders.threads()) as pool:
            rows = index.tolist()
            return torch.stack(list(pool.map(lambda i: self.one(i, None if choices is None else choices[i]), rows)))

    def decode_ahead(self, parts: Sequence[Tensor], choices: Tensor | None) -> Iterator[Tensor]:
        """The images of each batch in turn, the next ones being decoded while the caller uses this one.

        By threads, or for many images by several processes: see `image_loaders`.
        """
        count = sum(map(len, parts))
        processes = image_loaders.processes(count)
        if processes:
            yield from image_loaders.from_processes(self, parts, choices, processes)
            return
        with ThreadPoolExecutor(image_loaders.threads()) as pool:
            waiting: list[list[Any]] = []
            for part in [*parts, None]:
                if part is not None:
                    rows = [(i, None if choices is None else choices[i]) for i in part.tolist()]
                    waiting.append([pool.submit(self.one, *row) for row in rows])
                if len(waiting) == 2 or (part is None and waiting):
                    yield torch.stack([image.result() for image in waiting.pop(0)])

    def one(self, number: int, choice: Tensor | None) -> Tensor:
        """An image, uint8 (3, size, size); `choice` is its row of `draw`."""
        import numpy as np
        from PIL import Image

        opened, name = self.opened(number)
        try:
            with opened, Image.open(opened) as file:
                image = file.convert("RGB")
        except (OSError, SyntaxError) as error:
            raise CorruptDataError(f"{name} must be an image, but {error}; put the original file back") from error
        width, height = image.size
        box = _centre(width, height) if choice is None else _random_box(width, height, choice)
        image = image.resize((self.size, self.size), Image.Resampling.BILINEAR, box=box)
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1)  # (3, size, size)
        return pixels.flip(2) if choice is not None and bool(choice[0]) else pixels.contiguous()


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
