"""CIFAR-10 and CIFAR-100 (Krizhevsky, 2009): 32x32 colour images, 50,000 for training and 10,000 for testing.

Published form: the authors' binary archives, whose MD5 they publish; records of one label byte (CIFAR-100: coarse and
fine) and 3,072 bytes of pixels. Prepared form of CIFAR-10: `cifar10/{train,test}_NN.webp`, sheets of 1,000, and
`cifar10/labels.npz`.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from varlearn.data import prepared, sources
from varlearn.data.archive import members
from varlearn.data.errors import CorruptDataError
from varlearn.data.examples import Examples
from varlearn.data.imageset import ImageSet
from varlearn.data.sources import Published

_COUNTS = {"train": 50_000, "test": 10_000}
_PIXELS = 3 * 32 * 32

_FINE_CLASSES = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can
castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin
elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster
man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck
pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk
skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger
tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm
"""

CIFAR10 = ImageSet(
    ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"), (3, 32, 32), _COUNTS
)
CIFAR100 = ImageSet(
    tuple(_FINE_CLASSES.split()),
    (3, 32, 32),
    _COUNTS,
)

_ARCHIVE10 = Published(
    "cifar-10-binary.tar.gz",
    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    "c32a1d4ab5d03f1284b67883e8d87530",
)
_ARCHIVE100 = Published(
    "cifar-100-binary.tar.gz",
    "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
    "03b5dce01913d631647c71ecec9e9cb8",
)


def cifar10(split: str, root: Path | None = None) -> Examples:
    """CIFAR-10 in the authors' order; split is train or test. Normalised with ImageNet's statistics, like the paper."""
    CIFAR10.check_split(split)
    folder = sources.find("cifar10", root)
    if folder is not None:
        images = prepared.sheets(folder / f"{split}_{k:02d}.webp" for k in range(_COUNTS[split] // 1000))
        labels = prepared.arrays(folder / "labels.npz")[split]
        return CIFAR10.examples(images, torch.from_numpy(labels), split, folder)
    path = sources.published(_ARCHIVE10, root)
    files = [f"data_batch_{k}.bin" for k in range(1, 6)] if split == "train" else ["test_batch.bin"]
    images, labels = _records(path, [f"cifar-10-batches-bin/{name}" for name in files], label_bytes=1)
    return CIFAR10.examples(images, labels, split, path)


def cifar100(split: str, root: Path | None = None) -> Examples:
    """CIFAR-100 with its 100 fine classes, in the authors' order; split is train or test."""
    CIFAR100.check_split(split)
    path = sources.published(_ARCHIVE100, root)
    images, labels = _records(path, [f"cifar-100-binary/{split}.bin"], label_bytes=2)
    return CIFAR100.examples(images, labels, split, path)


def _records(path: Path, names: list[str], label_bytes: int) -> tuple[Tensor, Tensor]:
    """Images and the last label byte of the records in the archive's files."""
    raw = b"".join(members(path, names))
    size = label_bytes + _PIXELS
    if len(raw) % size:
        raise CorruptDataError(f"{path} holds {len(raw):,} bytes of records, not a multiple of {size}; fetch it again")
    table = torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(-1, size)
    return table[:, label_bytes:].reshape(-1, 3, 32, 32), table[:, label_bytes - 1]
