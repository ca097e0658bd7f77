from pathlib import Path

import numpy as np
import pytest
import torch

from tests.data.files import write, write_npz
from varlearn.data.errors import CorruptDataError, DownloadError
from varlearn.data.uci import SHAPES, uci


def published(root: Path, table: np.ndarray, test: list[int]) -> None:
    folder = root / "UCI_Datasets" / "yacht" / "data"
    lines = "\n".join(" ".join(f"{value:.17g}" for value in row) for row in table)
    write(folder / "data.txt", lines.encode())
    write(folder / "index_features.txt", "\n".join(f"{k:.1e}" for k in range(6)).encode())
    write(folder / "index_target.txt", b"6.0e+00\n")
    write(folder / "index_test_3.txt", "\n".join(f"{k:.18e}" for k in test).encode())


def test_both_forms_agree(tmp_path: Path) -> None:
    table = np.random.default_rng(0).normal(3, 2, (308, 7))
    table[:, 2] = 7.0  # a constant column
    test = list(range(5, 308, 10))
    published(tmp_path / "a", table, test)
    mask = np.zeros((20, 308), dtype=bool)
    mask[3, test] = True
    write_npz(
        tmp_path / "b" / "uci" / "yacht.npz", X=table[:, :6], y=table[:, 6], test_mask=np.packbits(mask, axis=1), n=308
    )
    for split in ("train", "test"):
        one, two = (uci("uci-yacht", split, tmp_path / form, fold=3) for form in "ab")
        assert torch.equal(one.inputs[:], two.inputs[:])
        assert torch.equal(one.targets, two.targets)
        assert one.mean == two.mean
    train, held_out = (uci("uci-yacht", split, tmp_path / "a", fold=3) for split in ("train", "test"))
    assert (len(train), len(held_out)) == (277, 31)
    assert train.targets.mean().item() == pytest.approx(0, abs=1e-6)
    assert train.targets.std(correction=0).item() == pytest.approx(1, abs=1e-6)
    original = held_out.targets.double() * held_out.target_std + held_out.target_mean
    np.testing.assert_allclose(original, table[test, 6], rtol=1e-5)
    assert (train.mean[2], train.std[2]) == (7.0, 1.0)


def test_damage(tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match=r"UCI_Datasets/yacht/data/data.txt could not be downloaded"):
        uci("uci-yacht", "train", tmp_path)
    published(tmp_path, np.zeros((307, 7)), [1])
    with pytest.raises(CorruptDataError, match=r"inputs \(307, 6\) and targets \(307,\), not \(308, 6\)"):
        uci("uci-yacht", "train", tmp_path, fold=3)
    write(tmp_path / "UCI_Datasets" / "yacht" / "data" / "data.txt", b"1 2\nx\n")
    with pytest.raises(CorruptDataError, match=r"data.txt is no table of numbers"):
        uci("uci-yacht", "train", tmp_path, fold=3)
    with pytest.raises(ValueError, match="fold=5 must be between 0 and 4 for uci-protein"):
        uci("uci-protein", "train", tmp_path, fold=5)


@pytest.mark.parametrize("name", SHAPES)
def test_the_real_tables(pack: Path, name: str) -> None:
    _, rows, columns, folds = SHAPES[name]
    sizes = set()
    for fold in (0, folds - 1):
        train, test = (uci(name, split, pack, fold=fold) for split in ("train", "test"))
        assert train.inputs.shape[1] == test.inputs.shape[1] == columns
        assert len(train) + len(test) == rows
        assert len(test) / rows == pytest.approx(0.1, abs=0.005)
        sizes.add(tuple(test.inputs[0].tolist()))
    assert len(sizes) == 2
