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


def test_no_scikit_learn_names_its_extra_before_anything_is_trained(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    assert main(["demo", "--seeds", "1"]) == 1
    message = "varlearn: this command needs sklearn, which is not installed; pip install 'varlearn[demo]'\n"
    assert capsys.readouterr().err == message
    assert list(tmp_path.rglob("*")) == []


def test_the_report_needs_no_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from varlearn.train.config import Run, to_json

    (tmp_path / "config.json").write_text(to_json(Run()))
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["report", str(tmp_path)]) == 0
    assert (tmp_path / "report.html").exists()
