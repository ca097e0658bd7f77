"""CIFAR-10-C (Hendrycks and Dietterich, 2019): the test images of CIFAR-10, corrupted.

`cifar10c` reads the published files, `CIFAR-10-C/KIND.npy` and `CIFAR-10-C/labels.npy`, from the folder or from
`CIFAR-10-C.tar` (2.9 GB, whose MD5 is published). `cifar10_corrupted` makes its own from CIFAR-10; see `corruption`.
"""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from varlearn.data import sources
from varlearn.data.archive import members
from varlearn.data.cifar import CIFAR10, cifar10
from varlearn.data.corruption import CORRUPTIONS, corrupt
from varlearn.data.errors import CorruptDataError
from varlearn.data.examples import Examples
from varlearn.data.imageset import check_split
from varlearn.data.sources import Published

_ARCHIVE = Published(
    "CIFAR-10-C.tar",
    "https://zenodo.org/records/2535967/files/CIFAR-10-C.tar?download=1",
    "56bf5dcef84df0e2308c6dcbcbbd8499",
)
_N = 10_000


def cifar10c(
    split: str, root: Path | None = None, *, corruption: str = "gaussian_noise", severity: int = 3
) -> Examples:
    """The published images of one corruption and severity; the only split is test.

    Args:
        split: test.
        root: see `sources.folders`.
        corruption: one of `corruption.CORRUPTIONS`.
        severity: 1 .. 5.
    """
    _check(split, corruption, severity)
    names = [f"CIFAR-10-C/{corruption}.npy", "CIFAR-10-C/labels.npy"]
    folder = sources.find("CIFAR-10-C", root)
    if folder is not None:
        files = [sources.published(Published(name, None), root).read_bytes() for name in names]
        source = folder
    else:
        source = sources.published(_ARCHIVE, root)
        files = members(source, names)
    part = slice((severity - 1) * _N, severity * _N)
    images, labels = (_array(raw, f"{source} {name}")[part] for raw, name in zip(files, names, strict=True))
    return CIFAR10.examples(images.permute(0, 3, 1, 2), labels, split, source)


def cifar10_corrupted(
    split: str, root: Path | None = None, *, corruption: str = "gaussian_noise", severity: int = 3, seed: int = 0
) -> Examples:
    """CIFAR-10's test images, corrupted here; the only split is test.

    Args:
        split: test.
        root: see `sources.folders`.
        corruption: one of `corruption.CORRUPTIONS`.
        severity: 1 .. 5.
        seed: of the random draws.
    """
    _check(split, corruption, severity)
    clean = cifar10("test", root)
    assert isinstance(clean.inputs, Tensor)
    return replace(clean, inputs=corrupt(clean.inputs, corruption, severity, seed))


def _check(split: str, corruption: str, severity: int) -> None:
    check_split(split, ("test",))
    if corruption not in CORRUPTIONS or severity not in range(1, 6):
        raise ValueError(
            f"corruption={corruption!r}, severity={severity} must be one of {', '.join(CORRUPTIONS)} and 1 .. 5"
        )


def _array(raw: bytes, source: str) -> Tensor:
    try:
        return torch.from_numpy(np.load(io.BytesIO(raw), allow_pickle=False))
    except (ValueError, EOFError, OSError) as error:
        raise CorruptDataError(f"{source} is no readable array ({error}); fetch it again") from error
