from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.data.files import encoded, md5, write_zip
from varlearn.data import tinyimagenet
from varlearn.data.errors import CorruptDataError


def test_tinyimagenet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    images = [torch.full((3, 64, 64), 30 * k, dtype=torch.uint8) for k in range(4)]
    top = "tiny-imagenet-200"
    members = {
        f"{top}/wnids.txt": b"n02\nn01\n",
        f"{top}/train/n01/images/n01_0.JPEG": encoded(images[0], "JPEG"),
        f"{top}/train/n02/images/n02_0.JPEG": encoded(images[1], "JPEG"),
        f"{top}/train/n02/n02_boxes.txt": b"",
        f"{top}/val/images/val_1.JPEG": encoded(images[3], "JPEG"),
        f"{top}/val/images/val_0.JPEG": encoded(images[2], "JPEG"),
        f"{top}/val/val_annotations.txt": b"val_0.JPEG\tn01\t0\t0\t9\t9\nval_1.JPEG\tn02\t0\t0\t9\t9\n",
    }
    path = write_zip(tmp_path / "tiny-imagenet-200.zip", members)
    monkeypatch.setattr(tinyimagenet, "_COUNTS", {"train": 2, "valid": 2, "test": 2})
    monkeypatch.setattr(tinyimagenet, "_ARCHIVE", replace(tinyimagenet._ARCHIVE, checksum=md5(path)))
    train, test = tinyimagenet.tinyimagenet("train", tmp_path), tinyimagenet.tinyimagenet("test", tmp_path)
    assert train.inputs.shape == (2, 3, 64, 64)
    assert (train.targets.tolist(), train.inputs[:, 0, 0, 0].tolist()) == ([1, 0], [0, 30])
    assert (test.targets.tolist(), test.inputs[:, 0, 0, 0].tolist()) == ([1, 0], [60, 90])
    monkeypatch.setattr(tinyimagenet, "_COUNTS", {"train": 3, "valid": 2, "test": 2})
    with pytest.raises(CorruptDataError, match=r"shape \(2, 3, 64, 64\) .*, not \(3, 3, 64, 64\)"):
        tinyimagenet.tinyimagenet("train", tmp_path)
    del members[f"{top}/val/images/val_1.JPEG"]
    write_zip(path, members)
    monkeypatch.setattr(tinyimagenet, "_ARCHIVE", replace(tinyimagenet._ARCHIVE, checksum=None))
    with pytest.raises(CorruptDataError, match="is not TinyImageNet's archive"):
        tinyimagenet.tinyimagenet("test", tmp_path)
