"""What a release needs: one version, a README that stands alone, an sdist with all that the tests import."""

import ast
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import varlearn
from tools import each_python

ROOT = Path(__file__).parents[1]

tomllib = pytest.importorskip("tomllib", reason="came with Python 3.11")
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_version_stands_in_one_place() -> None:
    assert "version" in PROJECT["project"]["dynamic"]
    source = ROOT / PROJECT["tool"]["hatch"]["version"]["path"]
    assert source == Path(varlearn.__file__) or source.name == "__init__.py"
    assert re.findall(r'^__version__ = "(.*)"$', source.read_text(encoding="utf-8"), re.M) == [varlearn.__version__]


def test_the_readme_on_pypi_has_no_link_into_the_repository() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    hook = PROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    assert re.search(r"\]\((?!https?://|#)", text), "nothing to replace: remove the rules"
    for rule in hook["substitutions"]:
        text = re.sub(rule["pattern"], rule["replacement"], text)
    assert re.findall(r"\]\((?!https?://|#)[^)]*\)", text) == []
    assert "`docs/concepts.md`: " in text


def test_the_sdist_holds_every_folder_that_tests_import() -> None:
    included = {entry.strip("/") for entry in PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]}
    folders = {path.name for path in ROOT.iterdir() if path.is_dir()}
    imported = {
        name.partition(".")[0]
        for path in (ROOT / "tests").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for name in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else []
        )
    }
    assert {"tests", "benchmarks", "examples", "tools"} <= imported & folders <= included


def test_every_declared_python_is_tested() -> None:
    declared = [one.rpartition(" ")[2] for one in PROJECT["project"]["classifiers"] if "Python :: 3." in one]
    assert list(each_python.VERSIONS) == declared
    assert PROJECT["project"]["requires-python"] == f">={declared[0]}"


def test_interpreters_are_told_by_the_version_that_they_report() -> None:
    here = "{}.{}".format(*sys.version_info)
    assert each_python.version_of(sys.executable) == here
    assert each_python.version_of("no-such-python") is None
    assert each_python.found([sys.executable])[here] == sys.executable
