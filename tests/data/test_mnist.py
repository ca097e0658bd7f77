import gzip
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.data.files import md5, random_images, write
from varlearn.data import mnist
from varlearn.data.errors import CorruptDataError
from varlearn.data.examples import pixel_statistics


def idx(values: torch.Tensor) -> bytes:
    sizes = b"".join(size.to_bytes(4, "big") for size in values.shape)
    return gzip.compress(b"\0\0\x08" + bytes([values.dim()]) + sizes + values.to(torch.uint8).numpy().tobytes())


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
def test_the_published_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    images, labels = random_images(6, 28, 28), torch.tensor([5, 0, 4, 1, 9, 2])
    files = [
        write(tmp_path / name / "t10k-images-idx3-ubyte.gz", idx(images)),
        write(tmp_path / name / "t10k-labels-idx1-ubyte.gz", idx(labels)),
    ]
    constant = name.upper()
    monkeypatch.setattr(mnist, constant, replace(getattr(mnist, constant), counts={"test": 6}))
    sums = "_MNIST_MD5" if name == "mnist" else "_FASHION_MD5"
    monkeypatch.setattr(mnist, sums, {"test": tuple(md5(file) for file in files)})
    test = getattr(mnist, name)("test", tmp_path)
    assert torch.equal(test.inputs[:], images.unsqueeze(1))
    assert test.targets.tolist() == labels.tolist()
    assert test.mirror == (name == "fashion_mnist")
    monkeypatch.setattr(mnist, sums, {"test": (None, None)})
    for content, message in (
        (idx(images)[:-30], "is not whole gzip data"),
        (b"PK" + idx(images)[2:], "is not whole gzip data"),
        (gzip.compress(b"hello, world"), "begins with 68656c, not 000008"),
        (gzip.compress(gzip.decompress(idx(images))[:-1]), r"holds 4,703 values, not \[6, 28, 28\]"),
        (idx(images[:5]), r"shape \(5, 1, 28, 28\)"),
    ):
        files[0].write_bytes(content)
        with pytest.raises(CorruptDataError, match=message):
            getattr(mnist, name)("test", tmp_path)


def test_the_real_images(pack: Path) -> None:
    train, test = mnist.mnist("train", pack), mnist.mnist("test", pack)
    assert (len(train), len(test)) == (60_000, 10_000)
    assert train.targets.bincount().tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    mean, std = pixel_statistics(train.inputs[:])
    assert (mean[0], std[0]) == pytest.approx((train.mean[0], train.std[0]), abs=5e-5)
