from dataclasses import replace
from pathlib import Path

import pytest

from tests.data.files import md5, write_tar
from varlearn.data import imdb
from varlearn.data.errors import CorruptDataError


def test_imdb_as_published(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    members = {
        "aclImdb/train/pos/1_9.txt": b"so good<br /><br />again",
        "aclImdb/train/neg/0_2.txt": "schlecht, très bad".encode(),
        "aclImdb/train/unsup/0_0.txt": b"nothing",
        "aclImdb/train/pos/0_10.txt": b"fine",
    }
    path = write_tar(tmp_path / "aclImdb_v1.tar.gz", members)
    monkeypatch.setattr(imdb, "_ARCHIVE", replace(imdb._ARCHIVE, checksum=md5(path)))
    monkeypatch.setattr(imdb, "_COUNTS", {"train": 3})
    train = imdb.imdb("train", tmp_path)
    assert train.texts == ("schlecht, très bad", "fine", "so good again")
    assert train.targets.tolist() == [0, 1, 1]
    monkeypatch.setattr(imdb, "_ARCHIVE", replace(imdb._ARCHIVE, checksum=None))
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(CorruptDataError, match="cannot be unpacked"):
        imdb.imdb("train", tmp_path)
