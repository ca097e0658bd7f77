import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.data.files import md5, random_images, write, write_tar
from varlearn.data import cifar10c
from varlearn.data.cifar import cifar10
from varlearn.data.corruption import corrupt
from varlearn.data.errors import CorruptDataError, DownloadError, MissingDataError


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


@pytest.mark.parametrize("packed", [True, False])
def test_cifar10c(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, packed: bool) -> None:
    monkeypatch.setattr(cifar10c, "_N", 2)
    monkeypatch.setattr(cifar10c, "CIFAR10", replace(cifar10c.CIFAR10, counts={"test": 2}))
    images = random_images(10, 32, 32, 3)
    members = {
        "CIFAR-10-C/fog.npy": npy(images.numpy()),
        "CIFAR-10-C/labels.npy": npy(np.arange(10, dtype=np.uint8)),
    }
    if packed:
        path = write_tar(tmp_path / "CIFAR-10-C.tar", members)
        monkeypatch.setattr(cifar10c, "_ARCHIVE", replace(cifar10c._ARCHIVE, checksum=md5(path)))
    else:
        for name, content in members.items():
            write(tmp_path / name, content)
    test = cifar10c.cifar10c("test", tmp_path, corruption="fog", severity=4)
    assert torch.equal(test.inputs[:], images[6:8].permute(0, 3, 1, 2))
    assert test.targets.tolist() == [6, 7]
    with pytest.raises((CorruptDataError, MissingDataError), match=r"snow.npy"):
        cifar10c.cifar10c("test", tmp_path, corruption="snow")
    with pytest.raises(ValueError, match="corruption='rain', severity=3 must be one of gaussian_noise"):
        cifar10c.cifar10c("test", tmp_path, corruption="rain")
    with pytest.raises(ValueError, match="severity=6"):
        cifar10c.cifar10_corrupted("test", tmp_path, severity=6)


def test_published_and_generated_corruptions_are_told_apart(pack: Path) -> None:
    with pytest.raises(DownloadError, match=r"CIFAR-10-C.tar"):
        cifar10c.cifar10c("test", pack)
    made = cifar10c.cifar10_corrupted("test", pack, corruption="contrast", severity=1)
    clean = cifar10("test", pack)
    assert torch.equal(made.inputs[:10], corrupt(clean.inputs[:10], "contrast", 1))
    assert torch.equal(made.targets, clean.targets)
