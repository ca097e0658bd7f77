"""Parts of image sets at 32x32 pixels, for out-of-distribution tests where the whole sets are not at hand.

Prepared form alone: `ood32/NAME_NN.webp` and `ood32/labels.npz`. They are separate sets, with names that end in
"-pack": none stands in for the set that it was taken from. Each is normalised with its own statistics.
"""

from __future__ import annotations

from pathlib import Path

import torch

from varlearn.data import prepared, sources
from varlearn.data.cifar import CIFAR100
from varlearn.data.examples import Examples, pixel_statistics
from varlearn.data.imageset import ImageSet, check_split, numbered

UNLABELLED = ("unlabelled",)
_COUNTS = {"flowers102": 5_000, "tinyimagenet": 5_000, "cifar100": 2_033, "svhn55": 55}


def flowers102_pack(split: str, root: Path | None = None) -> Examples:
    """5,000 of the 8,189 Oxford flowers; the only split is test."""
    return _part("flowers102", numbered(102), split, root)


def tinyimagenet_pack(split: str, root: Path | None = None) -> Examples:
    """5,000 of TinyImageNet's validation images, 25 of each class; the only split is test."""
    return _part("tinyimagenet", numbered(200), split, root)


def cifar100_pack(split: str, root: Path | None = None) -> Examples:
    """2,033 images of CIFAR-100 with fine labels; the only split is test."""
    return _part("cifar100", CIFAR100.classes, split, root)


def svhn_pack(split: str, root: Path | None = None) -> Examples:
    """55 images of SVHN, of one class "unlabelled"; the only split is test."""
    return _part("svhn55", UNLABELLED, split, root)


def _part(name: str, classes: tuple[str, ...], split: str, root: Path | None) -> Examples:
    check_split(split, ("test",))
    labels_file = sources.find("ood32/labels.npz", root)
    if labels_file is None:
        cure = "set VARLEARN_DATA to a folder that holds it, or load the whole set by its own name"
        raise sources.missing("ood32/labels.npz", root, cure)
    labels, n = prepared.arrays(labels_file), _COUNTS[name]
    images = prepared.sheets(labels_file.parent / f"{name}_{k:02d}.webp" for k in range(-(-n // 1000)))[:n]
    targets = torch.from_numpy(labels[name]) if name in labels else torch.zeros(n, dtype=torch.long)
    names = labels.get(f"{name}_names")
    classes = classes if names is None else tuple(map(str, names))
    mean, std = pixel_statistics(images)
    return ImageSet(classes, (3, 32, 32), {"test": n}, mean, std).examples(images, targets, split, labels_file.parent)
