import hashlib
from pathlib import Path

import pytest

from tests.data.files import write
from varlearn.data import sources
from varlearn.data.errors import CorruptDataError, DownloadError, MissingDataError
from varlearn.data.sources import Published

FILE = Published("folder/file", "https://example.org/file", hashlib.md5(b"abc").hexdigest())


def test_the_places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VARLEARN_DATA", str(tmp_path))
    monkeypatch.setenv("VARLEARN_CACHE", "/cache")
    assert sources.folders(None) == [tmp_path, Path("/cache")]
    assert sources.folders(tmp_path / "other") == [tmp_path / "other"]
    monkeypatch.setenv("VARLEARN_DATA", "/no/such/folder")
    with pytest.raises(MissingDataError, match="VARLEARN_DATA=/no/such/folder must be a folder"):
        sources.folders(None)
    monkeypatch.delenv("VARLEARN_DATA")
    monkeypatch.delenv("VARLEARN_CACHE")
    monkeypatch.setenv("HOME", "/home/someone")
    assert sources.folders(None) == [Path("/home/someone/.cache/varlearn")]


def test_the_first_place_wins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    monkeypatch.setenv("VARLEARN_DATA", str(tmp_path / "data"))
    second = write(tmp_path / "cache" / "folder" / "file", b"abc")
    assert sources.published(FILE, None) == second
    first = write(tmp_path / "data" / "folder" / "file", b"abc")
    assert sources.published(FILE, None) == first


def test_a_damaged_file_is_refused_and_not_replaced(tmp_path: Path) -> None:
    path = write(tmp_path / "folder" / "file", b"abd")
    with pytest.raises(CorruptDataError, match="has md5 .*remove it"):
        sources.published(FILE, tmp_path)
    assert path.read_bytes() == b"abd"


def test_an_empty_file_and_a_directory_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "folder" / "file", b"")
    with pytest.raises(CorruptDataError, match="is empty"):
        sources.published(FILE, tmp_path)
    path.unlink()
    path.mkdir()
    with pytest.raises(CorruptDataError, match="must be a file, not a directory"):
        sources.published(FILE, tmp_path)


def test_what_is_nowhere_is_downloaded_to_the_last_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    monkeypatch.setenv("VARLEARN_DATA", str(tmp_path / "data"))
    with pytest.raises(DownloadError, match=str(tmp_path / "cache" / "folder" / "file")):
        sources.published(FILE, None)


def test_what_cannot_be_downloaded_says_where_to_put_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("VARLEARN_DATA", raising=False)
    with pytest.raises(MissingDataError, match=r"\(VARLEARN_DATA is not set\) .*put it at .*cache/a"):
        sources.published(Published("a", None), None)
