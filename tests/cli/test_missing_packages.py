"""The extra that is named for a missing package is the one that brings it."""

import re
import sys
from pathlib import Path

import pytest

from varlearn.cli import main
from varlearn.cli.missing_packages import EXTRAS, missing_package, require

PYPROJECT = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
DISTRIBUTIONS = {"PIL": "pillow", "sklearn": "scikit-learn", "cycler": "matplotlib"}  # where the names differ


@pytest.mark.parametrize("package", EXTRAS)
def test_the_extra_holds_the_package(package: str) -> None:
    (line,) = re.findall(rf"^{EXTRAS[package]} = \[(.*)\]", PYPROJECT, flags=re.MULTILINE)
    assert re.search(rf'"{DISTRIBUTIONS.get(package, package)}\b', line), line


def test_another_package_is_named_itself() -> None:
    assert missing_package("wandb.sdk").endswith("needs wandb, which is not installed; pip install wandb")


def test_a_required_package_is_looked_for() -> None:
    with pytest.raises(ModuleNotFoundError, match="this command needs nonsense_package, which is not installed"):
        require("json", "nonsense_package")


@pytest.mark.parametrize("words", [["demo", "--seeds", "1"], ["report", "run"]], ids=["demo", "report"])
def test_no_matplotlib_names_its_extra_before_anything_is_trained(
    words: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from varlearn.train.config import Run, to_json

    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text(to_json(Run()))
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(words) == 1
    message = "varlearn: this command needs matplotlib, which is not installed; pip install 'varlearn[plot]'\n"
    assert capsys.readouterr().err == message
    assert [path.name for path in tmp_path.rglob("*")] == ["run", "config.json"]
