"""Whether a run may begin or go on in a folder."""

from dataclasses import replace
from pathlib import Path

import pytest

from varlearn.train import Optim, Run, RunFolder, RunFolderError, WriteError, checkpoint
from varlearn.train.run_folder import config_differences


def open_folder(folder: RunFolder, run: Run, *, resume: bool) -> None:
    with folder.opened(run, resume=resume):
        pass


def test_a_new_folder(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "a" / "b")
    open_folder(folder, Run(seed=4), resume=False)
    assert folder.read_run() == Run(seed=4)


def test_an_empty_folder_and_one_with_orphans_will_do(tmp_path: Path) -> None:
    (tmp_path / ".config.json.0011223344556677.tmp").write_text("half")
    open_folder(RunFolder(tmp_path), Run(), resume=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "checkpoint", "config.json"]


@pytest.mark.parametrize("resume", [True, False])
def test_a_run_that_was_killed_before_it_wrote_its_configuration_can_begin(resume: bool, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.checkpoints.folder.mkdir()
    (tmp_path / ".lock").touch()
    open_folder(folder, Run(seed=2), resume=resume)
    assert folder.read_run() == Run(seed=2)


def test_checkpoints_without_a_configuration_are_refused(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.checkpoints.save(1, {"step": 1})
    with pytest.raises(RunFolderError, match="what is in it is no run"):
        open_folder(folder, Run(), resume=True)
    assert len(folder.checkpoints.paths()) == 1


def test_a_folder_with_a_run_must_be_resumed(tmp_path: Path) -> None:
    open_folder(RunFolder(tmp_path), Run(), resume=False)
    with pytest.raises(RunFolderError, match=r"already holds a run; resume it"):
        open_folder(RunFolder(tmp_path), Run(), resume=False)
    open_folder(RunFolder(tmp_path), Run(), resume=True)


@pytest.mark.parametrize("resume", [True, False])
def test_a_folder_with_something_else_is_refused(resume: bool, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(RunFolderError, match=r"is not empty, and what is in it is no run; choose an empty folder"):
        open_folder(RunFolder(tmp_path), Run(), resume=resume)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    with pytest.raises(RunFolderError, match=r"is a file; a run needs a folder"):
        open_folder(RunFolder(tmp_path / "x"), Run(), resume=False)


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)  # chmod does not stop root
    with pytest.raises(WriteError, match=r"cannot write .*: the folder is read-only.*make the folder writable"):
        open_folder(RunFolder(tmp_path / "run"), Run(), resume=False)


def test_a_folder_that_cannot_be_made() -> None:
    with pytest.raises(WriteError, match=r"cannot write /proc/varlearn"):
        open_folder(RunFolder(Path("/proc/varlearn")), Run(), resume=False)


@pytest.mark.parametrize("text", ["", "{", '{"sed": 1}', "[]", '{"optim": {"lr": -1}}'])
def test_a_damaged_configuration_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(RunFolderError, match=r"config.json cannot be read .*put back"):
        open_folder(RunFolder(tmp_path), Run(), resume=True)


def test_differences_by_their_dotted_names() -> None:
    one = Run()
    two = replace(one, seed=1, optim=replace(one.optim, lr=0.3), data=replace(one.data, ood=("svhn",)))
    assert config_differences(one, two) == {"seed": (0, 1), "data.ood": ((), ("svhn",)), "optim.lr": (None, 0.3)}
    assert config_differences(one, one) == {}


def test_methods_with_other_settings_differ_in_those() -> None:
    ours, paper = Run(), Run(optim=Optim("ivon"))
    found = config_differences(ours, paper)
    assert found["optim.name"][1] == "ivon"
    assert found["optim.beta2"] == (0.999, 0.99999)
    assert config_differences(paper, ours) == {key: (now, was) for key, (was, now) in found.items()}


def test_a_second_process_leaves_the_files_of_the_first_alone(tmp_path: Path) -> None:
    """The temporary files of a run that is training are not orphans."""
    with RunFolder(tmp_path).opened(Run(), resume=False):
        temporary = tmp_path / "checkpoint" / ".step-00000001.safetensors.0011223344556677.tmp"
        temporary.write_text("half")
        with pytest.raises(RunFolderError, match="another process is training in"):
            open_folder(RunFolder(tmp_path), Run(), resume=True)
        assert temporary.exists()
    open_folder(RunFolder(tmp_path), Run(), resume=True)
    assert not temporary.exists()


def test_a_flipped_bit_in_the_configuration_is_noticed(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    open_folder(folder, Run(), resume=False)
    text = folder.config.read_bytes()
    folder.config.write_bytes(text.replace(b'"seed": 0', b'"seed": 1'))
    with pytest.raises(RunFolderError, match=r"does not fit its checksum.*replace its last line"):
        folder.read_run()
    folder.config.write_bytes(b"".join([*text.splitlines(True)[:-1], b"}"]))
    assert folder.read_run() == Run()


def test_opening_removes_no_sound_checkpoint_behind_damaged_ones(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    open_folder(folder, Run(), resume=False)
    for step in (1, 2, 3):
        checkpoint.write(folder.checkpoints.folder / f"step-{step:08d}.safetensors", {"step": step})
    for path in folder.checkpoints.paths()[1:]:
        path.write_bytes(path.read_bytes()[:-1])
    open_folder(folder, Run(), resume=True)
    assert folder.checkpoints.newest().state == {"step": 1}
