"""Whether a run may begin or go on in a folder."""

from dataclasses import replace
from pathlib import Path

import pytest

from varlearn.train import Optim, Run, RunFolder, RunFolderError, WriteError
from varlearn.train.run_folder import config_differences


def test_a_new_folder(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "a" / "b")
    folder.open(Run(seed=4), resume=False)
    assert folder.read_run() == Run(seed=4)


def test_an_empty_folder_and_one_with_orphans_will_do(tmp_path: Path) -> None:
    (tmp_path / ".config.json.0011223344556677.tmp").write_text("half")
    RunFolder(tmp_path).open(Run(), resume=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint", "config.json"]


def test_a_folder_with_a_run_must_be_resumed(tmp_path: Path) -> None:
    RunFolder(tmp_path).open(Run(), resume=False)
    with pytest.raises(RunFolderError, match=r"already holds a run; resume it"):
        RunFolder(tmp_path).open(Run(), resume=False)
    RunFolder(tmp_path).open(Run(), resume=True)


@pytest.mark.parametrize("resume", [True, False])
def test_a_folder_with_something_else_is_refused(resume: bool, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(RunFolderError, match=r"is not empty, and what is in it is no run; choose an empty folder"):
        RunFolder(tmp_path).open(Run(), resume=resume)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    with pytest.raises(RunFolderError, match=r"is a file; a run needs a folder"):
        RunFolder(tmp_path / "x").open(Run(), resume=False)


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)  # chmod does not stop root
    with pytest.raises(WriteError, match=r"cannot write .*: the folder is read-only.*make the folder writable"):
        RunFolder(tmp_path / "run").open(Run(), resume=False)


def test_a_folder_that_cannot_be_made() -> None:
    with pytest.raises(WriteError, match=r"cannot write /proc/varlearn"):
        RunFolder(Path("/proc/varlearn")).open(Run(), resume=False)


@pytest.mark.parametrize("text", ["", "{", '{"sed": 1}', "[]", '{"optim": {"lr": -1}}'])
def test_a_damaged_configuration_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(RunFolderError, match=r"config.json cannot be read .*put back"):
        RunFolder(tmp_path).open(Run(), resume=True)


def test_differences_by_their_dotted_names() -> None:
    one = Run()
    two = replace(one, seed=1, optim=Optim(lr=0.3), data=replace(one.data, ood=("svhn",)))
    assert config_differences(one, two) == {"seed": (0, 1), "data.ood": ((), ("svhn",)), "optim.lr": (0.2, 0.3)}
    assert config_differences(one, one) == {}
