"""What is fixed about a set of images, so that its readers and its synthetic twin agree."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from varlearn.data.errors import CorruptDataError
from varlearn.data.examples import Examples

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class ImageSet:
    """Facts about a set of images.

    Attributes:
        classes: names by number.
        shape: (C, H, W) of an image.
        counts: number of images of each split.
        mean: per channel of pixels in [0, 1], for normalisation; empty for none.
        std: see `mean`.
        mirror: whether a mirrored image is still of its class.
    """

    classes: tuple[str, ...]
    shape: tuple[int, int, int]
    counts: dict[str, int]
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    mirror: bool = True

    def check_split(self, split: str) -> None:
        """Refuse a split that the set does not have."""
        check_split(split, self.counts)

    def examples(self, images: Tensor, targets: Tensor, split: str, source: object) -> Examples:
        """Examples of a split, refused unless they are all there and of the right form.

        Args:
            images: uint8 (N, C, H, W).
            targets: classes (N,), any integer dtype.
            split: name of the split.
            source: file or folder that they came from, for messages.
        """
        expected = (self.counts[split], *self.shape)
        if tuple(images.shape) != expected or images.dtype != torch.uint8:
            raise CorruptDataError(
                f"{source} holds {split} images of shape {tuple(images.shape)} {images.dtype}, not {expected} uint8; "
                "put the original there"
            )
        check_targets(targets, self.counts[split], len(self.classes), source)
        return Examples(
            images.contiguous(), targets.long(), self.classes, "image", self.mean, self.std, mirror=self.mirror
        )


def check_split(split: str, known: dict[str, int] | tuple[str, ...]) -> None:
    """Refuse a split that a set does not have.

    >>> check_split("valid", ("train", "test"))
    Traceback (most recent call last):
    ...
    ValueError: split='valid' must be one of train, test
    """
    if split not in known:
        raise ValueError(f"split={split!r} must be one of {', '.join(known)}")


def check_targets(targets: Tensor, n: int, classes: int, source: object) -> None:
    """Refuse labels of the wrong number, or outside 0 .. classes - 1."""
    if tuple(targets.shape) != (n,):
        raise CorruptDataError(f"{source} holds {tuple(targets.shape)} labels, not {n:,}; put the original there")
    low, high = int(targets.min()), int(targets.max())
    if low < 0 or high >= classes:
        raise CorruptDataError(f"{source} has labels {low} .. {high}, not 0 .. {classes - 1}; put the original there")


def numbered(n: int) -> tuple[str, ...]:
    """Names for classes that have none.

    >>> numbered(3)
    ('0', '1', '2')
    """
    return tuple(str(number) for number in range(n))
