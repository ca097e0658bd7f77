"""Files are whole or unchanged."""

import os
from pathlib import Path

import pytest
from safetensors import SafetensorError

from varlearn.files.atomic import WriteError, remove_orphans, replacing, write_text, writing


def test_a_failed_write_leaves_the_old_text_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_text(tmp_path / "a.json", "old")

    def fail(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(WriteError, match=r"cannot write .*a.json: No space left on device"):
            write_text(tmp_path / "a.json", "new")
    assert (tmp_path / "a.json").read_text() == "old"
    assert os.listdir(tmp_path) == ["a.json"]


def test_safetensors_own_errors_are_write_errors(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="I/O error"), writing(tmp_path):
        raise SafetensorError("I/O error: no space")


def test_only_temporary_files_are_orphans(tmp_path: Path) -> None:
    for name in (".a.1.tmp", ".tmpO0E5Cb", "b.tmp", ".hidden", ".tmpO0E5Cb7", "c.json"):
        (tmp_path / name).write_text("")
    assert [path.name for path in remove_orphans(tmp_path)] == [".a.1.tmp", ".tmpO0E5Cb"]
    assert sorted(os.listdir(tmp_path)) == [".hidden", ".tmpO0E5Cb7", "b.tmp", "c.json"]


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_an_error_while_writing_keeps_the_old_file(tmp_path: Path, error: BaseException) -> None:
    path = tmp_path / "a"
    path.write_text("old")

    def write_half() -> None:
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise error

    with pytest.raises(type(error)):
        write_half()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a"]


def test_nothing_is_there_under_the_name_until_the_end(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with replacing(path) as temporary:
        temporary.write_text("half")
        assert not path.exists()
        assert temporary.parent == tmp_path
    assert path.read_text() == "half"


def test_an_error_before_anything_is_written_is_the_one_that_is_raised(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="disk full"), replacing(tmp_path / "a"):
        raise OSError("disk full")
    assert os.listdir(tmp_path) == []
