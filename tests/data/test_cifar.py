import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.data.files import md5, random_images, write_npz, write_sheet, write_tar
from varlearn.data import cifar
from varlearn.data.errors import CorruptDataError, DownloadError, MissingDataError
from varlearn.data.examples import Examples, pixel_statistics


def records(labels: list[list[int]], images: torch.Tensor) -> bytes:
    return b"".join(bytes(label) + image.numpy().tobytes() for label, image in zip(labels, images, strict=True))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[Path, torch.Tensor, list[int]]:
    """CIFAR-10 of 20 + 4 images in the published format."""
    images = random_images(24, 3, 32, 32)
    labels = [k % 10 for k in range(24)]
    members = {"cifar-10-batches-bin/readme.html": b"hello"}
    for k in range(5):
        part = slice(4 * k, 4 * k + 4)
        members[f"cifar-10-batches-bin/data_batch_{k + 1}.bin"] = records([[y] for y in labels[part]], images[part])
    members["cifar-10-batches-bin/test_batch.bin"] = records([[y] for y in labels[20:]], images[20:])
    path = write_tar(tmp_path / "cifar-10-binary.tar.gz", members)
    monkeypatch.setattr(cifar, "CIFAR10", replace(cifar.CIFAR10, counts={"train": 20, "test": 4}))
    monkeypatch.setattr(cifar, "_ARCHIVE10", replace(cifar._ARCHIVE10, checksum=md5(path)))
    return tmp_path, images, labels


def test_the_published_archive(small: tuple[Path, torch.Tensor, list[int]]) -> None:
    root, images, labels = small
    train, test = cifar.cifar10("train", root), cifar.cifar10("test", root)
    assert torch.equal(train.inputs[:], images[:20])
    assert torch.equal(test.inputs[:], images[20:])
    assert train.targets.tolist() + test.targets.tolist() == labels
    assert (train.mean, train.mirror, train.classes[3]) == ((0.485, 0.456, 0.406), True, "cat")


def test_one_flipped_bit(small: tuple[Path, torch.Tensor, list[int]]) -> None:
    path = small[0] / "cifar-10-binary.tar.gz"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(CorruptDataError, match=r"cifar-10-binary.tar.gz .* has md5"):
        cifar.cifar10("train", small[0])


def test_content_is_checked_too(small: tuple[Path, torch.Tensor, list[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    root, images, labels = small
    monkeypatch.setattr(cifar, "_ARCHIVE10", replace(cifar._ARCHIVE10, checksum=None))
    path, name = root / "cifar-10-binary.tar.gz", "cifar-10-batches-bin/test_batch.bin"
    good = records([[y] for y in labels[20:]], images[20:])
    for content, message in (
        ({name: good[:-1]}, "not a multiple of 3073"),
        ({name: good[:3073]}, r"shape \(1, 3, 32, 32\) .*, not \(4, 3, 32, 32\)"),
        ({name: bytes([10]) + good[1:]}, "labels 1 .. 10, not 0 .. 9"),
        ({"other": good}, f"has nothing in {name}"),
    ):
        write_tar(path, content)
        with pytest.raises(CorruptDataError, match=message):
            cifar.cifar10("test", root)
    path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(CorruptDataError, match="cannot be unpacked"):
        cifar.cifar10("test", root)


def test_cifar100_takes_the_fine_label(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    images = random_images(3, 3, 32, 32)
    raw = records([[19, 0], [0, 99], [5, 50]], images)
    path = write_tar(tmp_path / "cifar-100-binary.tar.gz", {"cifar-100-binary/test.bin": raw})
    monkeypatch.setattr(cifar, "CIFAR100", replace(cifar.CIFAR100, counts={"test": 3}))
    monkeypatch.setattr(cifar, "_ARCHIVE100", replace(cifar._ARCHIVE100, checksum=md5(path)))
    test = cifar.cifar100("test", tmp_path)
    assert test.targets.tolist() == [0, 99, 50]
    assert [test.classes[k] for k in (0, 99, 50)] == ["apple", "worm", "mouse"]
    assert torch.equal(test.inputs[:], images)
    assert len(test.classes) == 100


def test_sheets_and_a_missing_sheet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cifar, "_COUNTS", {"test": 2000})
    monkeypatch.setattr(cifar, "CIFAR10", replace(cifar.CIFAR10, counts={"test": 2000}))
    images, labels = random_images(2000, 3, 32, 32), np.arange(2000, dtype=np.uint8) % 10
    for k in range(2):
        write_sheet(tmp_path / "cifar10" / f"test_{k:02d}.webp", images[1000 * k : 1000 * k + 1000])
    write_npz(tmp_path / "cifar10" / "labels.npz", test=labels)
    test = cifar.cifar10("test", tmp_path)
    assert torch.equal(test.inputs[:], images)
    write_sheet(tmp_path / "cifar10" / "test_01.webp", images[:975])
    with pytest.raises(CorruptDataError, match=r"shape \(1975, 3, 32, 32\)"):
        cifar.cifar10("test", tmp_path)
    (tmp_path / "cifar10" / "test_01.webp").unlink()
    with pytest.raises(MissingDataError, match=r"test_01.webp is missing from its folder"):
        cifar.cifar10("test", tmp_path)


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match=r"cifar-10-binary.tar.gz could not be downloaded .*VARLEARN_DATA"):
        cifar.cifar10("test", tmp_path)
    with pytest.raises(ValueError, match="split='valid' must be one of train, test"):
        cifar.cifar10("valid", tmp_path)


@pytest.fixture(scope="module")
def real(pack: Path) -> tuple[Examples, Examples]:
    return cifar.cifar10("train", pack), cifar.cifar10("test", pack)


def test_the_real_images(real: tuple[Examples, Examples]) -> None:
    train, test = real
    assert train.targets.bincount().tolist() == [5000] * 10
    assert test.targets.bincount().tolist() == [1000] * 10
    mean, std = pixel_statistics(train.inputs[:])
    assert mean == pytest.approx((0.4914, 0.4822, 0.4465), abs=5e-5)
    assert std == pytest.approx((0.2470, 0.2435, 0.2616), abs=5e-5)
    assert test.targets[:4].tolist() == [3, 8, 8, 0]


def test_a_real_sheet_with_one_flipped_bit(pack: Path, tmp_path: Path) -> None:
    (tmp_path / "cifar10").mkdir()
    for file in (pack / "cifar10").iterdir():
        if not file.name.startswith("train"):
            shutil.copy(file, tmp_path / "cifar10")
    shutil.copy(pack / "SHA256SUMS", tmp_path)
    sheet = tmp_path / "cifar10" / "test_07.webp"
    content = bytearray(sheet.read_bytes())
    content[-100] ^= 4
    sheet.write_bytes(content)
    with pytest.raises(CorruptDataError, match=r"test_07.webp .* has sha256"):
        cifar.cifar10("test", tmp_path)
