"""scikit-learn's 1,797 handwritten digits of 8x8 pixels: real data that come with the package.

"digits-upside-down" and "digits-noise" are made of its test images. A model of digits should be unsure about them.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from varlearn.data.errors import MissingDataError
from varlearn.data.examples import Examples
from varlearn.data.imageset import ImageSet, numbered

DIGITS = ImageSet(numbered(10), (1, 8, 8), {"train": 1_000, "test": 797}, (0.3045,), (0.3755,), mirror=False)
STRANGE = replace(DIGITS, counts={"test": 797})


def digits(split: str, root: Path | None = None) -> Examples:
    """Digits in one fixed random order, 1,000 for training and 797 for testing; `root` is not needed.

    >>> digits("train").inputs.shape, digits("test").inputs.shape
    (torch.Size([1000, 1, 8, 8]), torch.Size([797, 1, 8, 8]))
    """
    DIGITS.check_split(split)
    try:
        from sklearn import datasets
    except ImportError:
        raise MissingDataError(
            "the digits come with scikit-learn, which is not there; pip install scikit-learn"
        ) from None
    pixels, classes = datasets.load_digits(return_X_y=True)
    images = torch.tensor(pixels).mul(255 / 16).round().to(torch.uint8).view(-1, 1, 8, 8)  # the source counts 0 .. 16
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    chosen = order[:1_000] if split == "train" else order[1_000:]
    return DIGITS.examples(images[chosen], torch.tensor(classes)[chosen], split, "scikit-learn")


def upside_down(split: str, root: Path | None = None) -> Examples:
    """The test digits upside down; 0 and 8 still look like themselves.

    >>> upside_down("test").inputs.shape
    torch.Size([797, 1, 8, 8])
    """
    STRANGE.check_split(split)
    test = digits("test", root)
    assert isinstance(test.inputs, Tensor)
    return replace(test, inputs=test.inputs.flip(2))


def noise(split: str, root: Path | None = None) -> Examples:
    """Noise with the pixels of the test digits, put into one fixed random order over all images.

    >>> noise("test").inputs.shape
    torch.Size([797, 1, 8, 8])
    """
    STRANGE.check_split(split)
    test = digits("test", root)
    assert isinstance(test.inputs, Tensor)
    order = torch.randperm(test.inputs.numel(), generator=torch.Generator().manual_seed(0))
    return replace(test, inputs=test.inputs.flatten()[order].view_as(test.inputs))
