"""TinyImageNet: 200 classes of ImageNet at 64x64 pixels, 100,000 + 10,000.

Published form: `tiny-imagenet-200.zip`, whose MD5 is known. The authors keep the labels of their test split, so the
validation split is what one tests on; it goes by both names, "valid" and "test".
"""

from __future__ import annotations

import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from varlearn.data import sources
from varlearn.data.errors import CorruptDataError
from varlearn.data.examples import Examples
from varlearn.data.imageset import ImageSet, numbered
from varlearn.data.pictures import picture
from varlearn.data.sources import Published

_COUNTS = {"train": 100_000, "valid": 10_000, "test": 10_000}
_ARCHIVE = Published(
    "tiny-imagenet-200.zip",
    "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
    "90528d7ca1a48142e341f4ef8d21d0de",
)
_TOP = "tiny-imagenet-200"
TINYIMAGENET = ImageSet(numbered(200), (3, 64, 64), _COUNTS)


def tinyimagenet(split: str, root: Path | None = None) -> Examples:
    """TinyImageNet, normalised with ImageNet's statistics; split is train, or valid alias test."""
    TINYIMAGENET.check_split(split)
    path = sources.published(_ARCHIVE, root)
    try:
        with zipfile.ZipFile(path) as archive:
            classes = tuple(archive.read(f"{_TOP}/wnids.txt").decode().split())
            files = _training(archive, classes) if split == "train" else _validation(archive)
            raw = ((f"{path}/{name}", archive.read(name)) for name, _ in files)
            with ThreadPoolExecutor(2) as pool:
                images = torch.stack(list(pool.map(lambda item: picture(item[1], 64, item[0]), raw)))
    except (zipfile.BadZipFile, KeyError, OSError) as error:
        raise CorruptDataError(f"{path} is not TinyImageNet's archive ({error}); fetch it again") from error
    number = {wnid: k for k, wnid in enumerate(classes)}
    labels = torch.tensor([number[wnid] for _, wnid in files])
    facts = ImageSet(classes, (3, 64, 64), _COUNTS)
    return facts.examples(images, labels, split, path)


def _training(archive: zipfile.ZipFile, classes: tuple[str, ...]) -> list[tuple[str, str]]:
    """(file, class) of the training images, class by class."""
    known = set(classes)
    files = []
    for name in sorted(archive.namelist()):
        parts = name.split("/")
        if len(parts) == 5 and parts[1] == "train" and parts[2] in known and name.endswith(".JPEG"):
            files.append((name, parts[2]))
    return files


def _validation(archive: zipfile.ZipFile) -> list[tuple[str, str]]:
    """(file, class) of the validation images, in the order of their table."""
    lines = archive.read(f"{_TOP}/val/val_annotations.txt").decode().splitlines()
    rows = [line.split("\t") for line in lines if line]
    return [(f"{_TOP}/val/images/{row[0]}", row[1]) for row in rows]
