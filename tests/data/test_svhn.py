from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import torch

from tests.data.files import md5, random_images
from varlearn.data import svhn
from varlearn.data.errors import CorruptDataError


def test_svhn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    images = random_images(4, 3, 32, 32)
    path = tmp_path / "test_32x32.mat"
    scipy.io.savemat(path, {"X": images.permute(2, 3, 1, 0).numpy(), "y": np.array([[1], [10], [9], [10]])})
    monkeypatch.setattr(svhn, "SVHN", replace(svhn.SVHN, counts={"test": 4}))
    monkeypatch.setattr(svhn, "_MD5", {"test": md5(path)})
    test = svhn.svhn("test", tmp_path)
    assert torch.equal(test.inputs[:], images)
    assert test.targets.tolist() == [1, 0, 9, 0]
    assert test.mirror is False
    monkeypatch.setattr(svhn, "_MD5", {"test": None})
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(CorruptDataError, match=r"test_32x32.mat has no readable X and y"):
        svhn.svhn("test", tmp_path)
