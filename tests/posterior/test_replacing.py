"""The old file or the new one, and nothing else in the folder."""

import os
from pathlib import Path

import pytest

from varlearn.posterior.replacing import replacing


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
