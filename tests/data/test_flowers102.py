from dataclasses import replace
from pathlib import Path

import pytest
import scipy.io
import torch

from tests.data.files import encoded, md5, write_tar
from varlearn.data import flowers102
from varlearn.data.examples import pixel_statistics


def test_flowers102(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "flowers102"
    folder.mkdir()
    images = [torch.full((3, 50, 40 + k), 20 * k, dtype=torch.uint8) for k in range(6)]
    write_tar(
        folder / "102flowers.tgz",
        {f"jpg/image_{k + 1:05d}.jpg": encoded(images[k], "JPEG") for k in (3, 0, 5, 1, 4, 2)},
    )
    scipy.io.savemat(folder / "imagelabels.mat", {"labels": [[1, 102, 7, 8, 9, 10]]})
    scipy.io.savemat(folder / "setid.mat", {"trnid": [[1]], "valid": [[2]], "tstid": [[6, 3, 4]]})
    monkeypatch.setattr(flowers102, "_COUNTS", {"test": 3})
    monkeypatch.setattr(flowers102, "FLOWERS102", replace(flowers102.FLOWERS102, counts={"test": 3}))
    monkeypatch.setattr(flowers102, "_MD5", {name: md5(folder / name) for name in flowers102._MD5})
    test = flowers102.flowers102("test", tmp_path)
    assert test.inputs.shape == (3, 3, 32, 32)
    assert test.targets.tolist() == [9, 6, 7]
    assert test.inputs[:].float().mean((1, 2, 3)).round().tolist() == [100, 40, 60]
    assert test.mean == pixel_statistics(test.inputs[:])[0]
    assert flowers102.flowers102("test", tmp_path, size=16).inputs.shape == (3, 3, 16, 16)
