import hashlib
from pathlib import Path

import pytest

from varlearn.data import checksum
from varlearn.data.errors import CorruptDataError


@pytest.mark.parametrize("algorithm", ["md5", "sha256"])
def test_a_file_is_verified(tmp_path: Path, algorithm: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc" * 1_000_000)
    expected = hashlib.new(algorithm, path.read_bytes()).hexdigest()
    checksum.verify(path, expected)
    changed = bytearray(path.read_bytes())
    changed[1234] ^= 1
    path.write_bytes(changed)
    with pytest.raises(CorruptDataError, match=rf"{path} \(3,000,000 bytes\) has {algorithm} .*, not {expected}"):
        checksum.verify(path, expected)


def test_a_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    expected = hashlib.sha256(b"abc").hexdigest()
    checksum.verify(path, expected)
    monkeypatch.setattr(Path, "open", lambda *_: pytest.fail("read again"))
    checksum.verify(path, expected)


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(CorruptDataError, match="must be a file, not a directory"):
        checksum.verify(tmp_path, "0" * 32)
