"""MNIST (LeCun et al.) and Fashion-MNIST (Xiao et al., 2017): 28x28 grey images, 60,000 + 10,000.

Published form: four idx.gz files in a folder `mnist` or `fashion_mnist`, whose MD5s are published. Prepared form:
`{train,test}.npy.xz` and `labels.npz` in that folder.
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import torch
from torch import Tensor

from varlearn.data import prepared, sources
from varlearn.data.errors import CorruptDataError
from varlearn.data.examples import Examples
from varlearn.data.imageset import ImageSet, numbered
from varlearn.data.sources import Published

_COUNTS = {"train": 60_000, "test": 10_000}
MNIST = ImageSet(numbered(10), (1, 28, 28), _COUNTS, (0.1307,), (0.3081,), mirror=False)
FASHION_MNIST = ImageSet(
    ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"),
    (1, 28, 28),
    _COUNTS,
    (0.2860,),
    (0.3530,),
)

_MNIST_URL = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_FASHION_URL = "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/"
_NAMES = {
    "train": ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"),
    "test": ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"),
}
_MNIST_MD5 = {
    "train": ("f68b3c2dcbeaaa9fbdd348bbdeb94873", "d53e105ee54ea40749a09fcbcd1e9432"),
    "test": ("9fb629c4189551a2d022fa330f9573f3", "ec29112dd5afa0611ce80d1b7f02629c"),
}
_FASHION_MD5 = {
    "train": ("8d4fb7e6c68d591d4c3dfef9ec88bf0d", "25c81989df183df01b3e8a0aad5dffbe"),
    "test": ("bef4ecab320f06d8554ea6380940ec79", "bb300cfdad3c16e7a12a480ee83cd310"),
}


def mnist(split: str, root: Path | None = None) -> Examples:
    """Handwritten digits; split is train or test."""
    return _load("mnist", MNIST, _MNIST_URL, _MNIST_MD5, split, root)


def fashion_mnist(split: str, root: Path | None = None) -> Examples:
    """Articles of clothing; split is train or test."""
    return _load("fashion_mnist", FASHION_MNIST, _FASHION_URL, _FASHION_MD5, split, root)


def _load(
    name: str, facts: ImageSet, url: str, md5: dict[str, tuple[str, str]], split: str, root: Path | None
) -> Examples:
    facts.check_split(split)
    labels_file = sources.find(f"{name}/labels.npz", root)
    if labels_file is not None:
        images = prepared.array(labels_file.parent / f"{split}.npy.xz")
        labels = torch.from_numpy(prepared.arrays(labels_file)[split])
        return facts.examples(images.unsqueeze(1), labels, split, labels_file.parent)
    paths = [
        sources.published(Published(f"{name}/{file}", url + file, check), root)
        for file, check in zip(_NAMES[split], md5[split], strict=True)
    ]
    images, labels = (_idx(path) for path in paths)
    return facts.examples(images.unsqueeze(1), labels, split, paths[0].parent)


def _idx(path: Path) -> Tensor:
    """The array of an idx.gz file of bytes: a magic number, the number of dimensions, their sizes, the values."""
    try:
        raw = gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise CorruptDataError(f"{path} is not whole gzip data ({error}); fetch it again") from error
    if raw[:3] != b"\0\0\x08" or len(raw) < 4:
        raise CorruptDataError(f"{path} begins with {raw[:3].hex()}, not 000008 (idx of bytes); fetch it again")
    start = 4 + 4 * raw[3]
    shape = [int.from_bytes(raw[i : i + 4], "big") for i in range(4, start, 4)]
    values = torch.frombuffer(bytearray(raw[start:]), dtype=torch.uint8)
    if values.numel() != torch.Size(shape).numel():
        raise CorruptDataError(f"{path} holds {values.numel():,} values, not {shape}; fetch it again")
    return values.view(shape)
