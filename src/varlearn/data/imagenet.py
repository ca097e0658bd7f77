"""ImageNet (ILSVRC 2012): 1,281,167 + 50,000 photographs of 1,000 classes, decoded when a batch asks for them.

Its terms forbid passing it on, so there is nothing to download: put the images as `imagenet/{train,val}/CLASS/*.JPEG`,
or pack such folders with `varlearn prepare imagenet`.
"""

from __future__ import annotations

import os
from pathlib import Path

import torch

from varlearn.data import sources
from varlearn.data.errors import CorruptDataError
from varlearn.data.examples import Examples
from varlearn.data.image_folder import ImageFiles
from varlearn.data.image_shards import read_shards
from varlearn.data.imageset import IMAGENET_MEAN, IMAGENET_STD, ImageSet, check_targets, numbered
from varlearn.data.shard_preparation import PREPARED
from varlearn.data.stored_images import StoredImages

IMAGENET = ImageSet(numbered(1000), (3, 224, 224), {"train": 1_281_167, "valid": 50_000, "test": 50_000})
_FOLDERS = {"train": "train", "valid": "val", "test": "val"}


def imagenet(split: str, root: Path | None = None, *, size: int = 224) -> Examples:
    """ImageNet as files or shards; split is train, or valid alias test (the labels of the test split are not public).

    Args:
        split: train, valid or test.
        root: see `sources.folders`.
        size: side of the decoded square.
    """
    IMAGENET.check_split(split)
    packed = sources.find(f"imagenet/{PREPARED}", root)
    if packed is not None:
        images, targets, classes = read_shards(packed.parent, _FOLDERS[split], size)
        _check_classes(classes, packed.parent)
        return _examples(images, targets, classes, split, packed.parent)
    place = f"imagenet/{_FOLDERS[split]}"
    folder = sources.find(place, root)
    if folder is None:
        cure = (
            f"put a folder per class there, {place}/n01440764/*.JPEG and so on, or set VARLEARN_DATA to what holds it"
        )
        raise sources.missing(place, root, cure)
    classes = tuple(sorted(entry.name for entry in os.scandir(folder) if entry.is_dir()))
    _check_classes(classes, folder)
    files, labels = list[Path](), list[int]()
    for number, name in enumerate(classes):
        found = sorted(entry.name for entry in os.scandir(folder / name) if entry.name.lower().endswith(".jpeg"))
        files += [folder / name / file for file in found]
        labels += [number] * len(found)
    return _examples(ImageFiles(tuple(files), size), torch.tensor(labels, dtype=torch.long), classes, split, folder)


def _check_classes(classes: tuple[str, ...], folder: Path) -> None:
    if len(classes) != len(IMAGENET.classes):
        raise CorruptDataError(f"{folder} has {len(classes)} classes, not {len(IMAGENET.classes)}; add what is missing")


def _examples(
    images: StoredImages, targets: torch.Tensor, classes: tuple[str, ...], split: str, folder: Path
) -> Examples:
    check_targets(targets, IMAGENET.counts[split], len(classes), folder)
    return Examples(images, targets, classes, "image", IMAGENET_MEAN, IMAGENET_STD, mirror=True)
