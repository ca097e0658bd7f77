from pathlib import Path

import pytest

from tests.data.files import write, write_tar, write_zip
from varlearn.data.archive import members, tarred, zipped
from varlearn.data.errors import CorruptDataError


def test_tar(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar.gz", {"x/1": b"one", "x/2": b"two", "../x/1": b"outside", "y": b""})
    assert list(tarred(path, r"x/\d")) == [("x/1", b"one"), ("x/2", b"two")]
    assert members(path, ["x/2", "x/1"]) == [b"two", b"one"]
    for name in ("x/3", "y"):
        with pytest.raises(CorruptDataError, match=rf"a.tar.gz has nothing in {name}; fetch it again"):
            members(path, ["x/1", name])


def test_a_cut_tar(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar.gz", {"x": bytes(range(256)) * 500})
    write(path, path.read_bytes()[:-400])
    with pytest.raises(CorruptDataError, match="cannot be unpacked"):
        members(path, ["x"])


def test_zip(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.zip", {"x/1": b"one" * 100})
    assert zipped(path, "x/1") == b"one" * 100
    with pytest.raises(CorruptDataError, match="has no readable x/2"):
        zipped(path, "x/2")
    content = path.read_bytes()
    write(path, content.replace(b"oneone", b"onetwo", 1))
    with pytest.raises(CorruptDataError, match=r"has no readable x/1 \(Bad CRC-32"):
        zipped(path, "x/1")
    write(path, content[:-30])
    with pytest.raises(CorruptDataError, match="not a zip file"):
        zipped(path, "x/1")
