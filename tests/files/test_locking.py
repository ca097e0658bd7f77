"""A lock keeps other processes out, and not longer than its holder lives."""

import subprocess
import sys
from pathlib import Path

import pytest

from varlearn.files.atomic import WriteError
from varlearn.files.locking import BusyError, locked

pytest.importorskip("fcntl")

HOLD = """
import sys
from pathlib import Path
from varlearn.files.locking import locked
with locked(Path(sys.argv[1]), "busy"):
    print("mine", flush=True)
    sys.stdin.read()
"""


def test_a_process_that_is_killed_lets_go(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "mine\n"
        with pytest.raises(BusyError, match="wait for it"), locked(path, "wait for it"):
            pass
        holder.kill()
        holder.wait()
        with locked(path, "wait for it"):
            pass
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_its_holder_removes_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between opening the file and locking it, its holder may end. Then the lock of a removed file keeps nobody out."""
    import fcntl

    path, take, count = tmp_path / ".lock", fcntl.flock, 0

    def take_late(file: object, how: int) -> None:
        nonlocal count
        count += 1
        if count == 1:
            path.unlink()
        take(file, how)  # type: ignore[arg-type]

    monkeypatch.setattr(fcntl, "flock", take_late)
    with locked(path, "busy"):
        assert count == 2
        assert path.exists()
        with pytest.raises(BusyError), locked(path, "busy"):
            pass


def test_where_there_are_no_locks_nobody_is_kept_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    def refuse(file: object, how: int) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with locked(tmp_path / ".lock", "busy"), locked(tmp_path / ".lock", "busy"):
        pass


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="cannot write"), locked(tmp_path / "nowhere" / ".lock", "busy"):
        pass
