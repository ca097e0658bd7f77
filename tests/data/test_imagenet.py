from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.data.files import encoded, random_images, write
from varlearn.data import imagenet
from varlearn.data.errors import CorruptDataError, MissingDataError
from varlearn.data.image_folder import ImageFiles


def test_imagenet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match=r"imagenet/val is in none of .*put a folder per class there"):
        imagenet.imagenet("test", tmp_path)
    for name, n in (("n02", 1), ("n01", 2)):
        for k in range(n):
            write(tmp_path / "imagenet" / "val" / name / f"{k}.JPEG", encoded(random_images(1, 3, 40, 50)[0], "JPEG"))
    with pytest.raises(CorruptDataError, match="has 2 classes, not 1000"):
        imagenet.imagenet("test", tmp_path)
    monkeypatch.setattr(imagenet, "IMAGENET", replace(imagenet.IMAGENET, classes=("a", "b"), counts={"test": 3}))
    test = imagenet.imagenet("test", tmp_path, size=16)
    assert test.targets.tolist() == [0, 0, 1]
    assert test.classes == ("n01", "n02")
    assert isinstance(test.inputs, ImageFiles)
    assert test.inputs.decode(torch.tensor([2, 0])).shape == (2, 3, 16, 16)
    (tmp_path / "imagenet" / "val" / "n01" / "0.JPEG").unlink()
    with pytest.raises(CorruptDataError, match=r"holds \(2,\) labels, not 3"):
        imagenet.imagenet("test", tmp_path)
