"""Checkpoints: bit flips, torn files, full disks and dead writers never give another model."""

import errno
import os
import resource
from pathlib import Path

import pytest
import torch

from varlearn.files.atomic import WriteError
from varlearn.posterior import CorruptFileError
from varlearn.posterior import save as save_posterior
from varlearn.posterior.discrete import Point
from varlearn.train import checkpoint
from varlearn.train.checkpoint import Checkpoints
from varlearn.train.run_errors import RunFolderError

STATE = {"step": 7, "weights": {"w": torch.arange(6.0).view(2, 3)}, "betas": (0.9, None), "note": "é"}


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    return Checkpoints(tmp_path / "checkpoint")


def test_nothing_to_restore(checkpoints: Checkpoints) -> None:
    assert checkpoints.newest() == (None, None, {})


def test_the_newest_two_are_kept_in_the_order_of_their_numbers(checkpoints: Checkpoints) -> None:
    for step in (9, 10, 100_000_000):
        checkpoints.save(step, STATE | {"step": step})
    names = [path.name for path in checkpoints.paths()]
    assert names == ["step-00000010.safetensors", "step-100000000.safetensors"]
    assert checkpoints.newest().state["step"] == 100_000_000  # type: ignore[index]


def test_a_checkpoint_that_a_killed_run_did_not_remove_is_removed_by_the_next(checkpoints: Checkpoints) -> None:
    for step in (1, 2, 3):
        checkpoint.write(checkpoints.folder / f"step-{step:08d}.safetensors", STATE | {"step": step})
    (checkpoints.folder / ".tmpO0E5Cb").write_text("half")
    checkpoints.clean()
    checkpoints.remove_old()
    assert sorted(os.listdir(checkpoints.folder)) == ["step-00000002.safetensors", "step-00000003.safetensors"]


def test_every_flipped_bit_is_noticed_and_the_file_named(checkpoints: Checkpoints) -> None:
    path = checkpoints.save(1, STATE)
    good = path.read_bytes()
    for position in range(0, len(good), 7):
        for bit in (1, 128):
            path.write_bytes(good[:position] + bytes([good[position] ^ bit]) + good[position + 1 :])
            with pytest.raises(CorruptFileError, match=path.name):
                checkpoint.read(path)
    path.write_bytes(good)
    assert checkpoint.read(path)["betas"] == (0.9, None)


@pytest.mark.parametrize("length", [0, 4, 100, -1])
def test_a_truncated_file_is_noticed(checkpoints: Checkpoints, length: int) -> None:
    path = checkpoints.save(1, STATE)
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(CorruptFileError, match=path.name):
        checkpoint.read(path)


def test_the_one_before_serves_when_the_newest_is_damaged(checkpoints: Checkpoints) -> None:
    checkpoints.save(1, STATE | {"step": 1})
    newest = checkpoints.save(2, STATE | {"step": 2})
    newest.write_bytes(newest.read_bytes()[:-1])
    restored = checkpoints.newest()
    assert restored.state["step"] == 1  # type: ignore[index]
    assert list(restored.damaged) == [newest]
    assert newest.name in restored.damaged[newest]
    checkpoints.set_aside(newest)
    assert checkpoints.newest().damaged == {}


def test_no_sound_checkpoint_is_an_error_and_not_a_fresh_start(checkpoints: Checkpoints) -> None:
    for step in (1, 2):
        checkpoints.save(step, STATE).write_bytes(b"")
    with pytest.raises(CorruptFileError, match=r"no checkpoint is sound: .*00000002.*00000001.*another folder"):
        checkpoints.newest()


def test_orphans_of_a_dead_writer_are_removed(checkpoints: Checkpoints) -> None:
    path = checkpoints.save(1, STATE)
    orphan = path.with_name(f".{path.name}.0123456789abcdef.tmp")
    orphan.write_bytes(b"half")
    checkpoints.clean()
    assert os.listdir(checkpoints.folder) == [path.name]


def test_another_file_is_refused(tmp_path: Path) -> None:
    save_posterior(Point({"w": torch.ones(1)}), tmp_path / "p.safetensors")
    with pytest.raises(RunFolderError, match=r"format 'varlearn.posterior'.*move the file away"):
        checkpoint.read(tmp_path / "p.safetensors")


def test_a_full_disk_leaves_the_previous_checkpoint(checkpoints: Checkpoints) -> None:
    first = checkpoints.save(1, STATE)
    large = STATE | {"weights": {"w": torch.zeros(100_000)}}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))  # the system refuses to let a file grow beyond this
    try:
        with pytest.raises(WriteError, match=r"cannot write .*00000002.*free space"):
            checkpoints.save(2, large)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert os.listdir(checkpoints.folder) == [first.name]
    assert checkpoints.newest().path == first


def test_no_space_at_the_last_moment(checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    first = checkpoints.save(1, STATE)

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(WriteError, match="No space left on device"):
            checkpoints.save(2, STATE)
    assert os.listdir(checkpoints.folder) == [first.name]


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError, match="cannot write"):
        Checkpoints(tmp_path / "file" / "checkpoint").save(1, STATE)


def test_the_best_stands_apart(checkpoints: Checkpoints) -> None:
    checkpoints.save_best(STATE)
    assert checkpoints.paths() == []
    assert checkpoint.read(checkpoints.best)["step"] == 7
