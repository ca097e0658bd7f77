from pathlib import Path

import numpy as np
import pytest

from tests.data.files import md5, write, write_npz, write_xz
from varlearn.data import mrpc
from varlearn.data.errors import CorruptDataError, MissingDataError

TABLE = (
    '\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n1\t7\t8\tAn "odd one\tS\r\n0\t7\t9\tB\tT\r\n1\t5\t6\tC\tU\r\n'
)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mrpc, "_COUNTS", {"train": 3, "test": 3})
    monkeypatch.setattr(mrpc, "_DEV", 1)


@pytest.mark.usefixtures("small")
def test_mrpc_as_published(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for part in ("train", "test"):
        path = write(tmp_path / f"msr_paraphrase_{part}.txt", TABLE.encode())
        monkeypatch.setitem(mrpc._MD5, part, md5(path))
    write(tmp_path / "mrpc_dev_ids.tsv", b"7\t9\n")
    train, dev, test = (mrpc.mrpc(split, tmp_path) for split in ("train", "dev", "test"))
    assert (train.texts, train.seconds, train.targets.tolist()) == (('An "odd one', "C"), ("S", "U"), [1, 1])
    assert (dev.texts, dev.seconds, dev.targets.tolist()) == (("B",), ("T",), [0])
    assert len(test) == 3
    write(tmp_path / "mrpc_dev_ids.tsv", b"7\t4\n")
    with pytest.raises(CorruptDataError, match="names 0 pairs of MRPC's dev set, not 1"):
        mrpc.mrpc("dev", tmp_path)
    path.write_text(TABLE.replace("\tS", ""))
    monkeypatch.setitem(mrpc._MD5, "test", None)
    with pytest.raises(CorruptDataError, match="is not MRPC's table of five columns"):
        mrpc.mrpc("test", tmp_path)
    with pytest.raises(ValueError, match="split='valid' must be one of train, dev, test"):
        mrpc.mrpc("valid", tmp_path)


@pytest.mark.usefixtures("small")
def test_mrpc_prepared(tmp_path: Path) -> None:
    write_xz(tmp_path / "text" / "mrpc_train.tsv.xz", "1\tA\tB\n0\tC\tD\n1\tE\tF\n")
    with pytest.raises(MissingDataError, match=r"splits.npz"):
        mrpc.mrpc("dev", tmp_path)
    write_npz(tmp_path / "text" / "splits.npz", mrpc_dev=np.array([1], dtype=np.int16))
    assert mrpc.mrpc("train", tmp_path).texts == ("A", "E")
    assert mrpc.mrpc("dev", tmp_path).seconds == ("D",)


def test_the_real_split_is_glues(pack: Path) -> None:
    train, dev = mrpc.mrpc("train", pack), mrpc.mrpc("dev", pack)
    assert (len(train), len(dev)) == (3_668, 408)
    assert (int(train.targets.sum()), int(dev.targets.sum())) == (2_474, 279)  # GLUE's
    assert not set(zip(train.texts, train.seconds, strict=True)) & set(zip(dev.texts, dev.seconds, strict=True))
