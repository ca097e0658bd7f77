"""Names and sizes of the source files: one name, one thing; short enough for a single reading."""

from collections import Counter, defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "varlearn"
MODULES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py") if path.name != "__init__.py")
LONGEST = {"src": 300, "tests": 400}

# Paths of version 0.1 that forward to their new place for one version; see varlearn.files.moved.
FORWARDING = {Path("posterior/io.py"), Path("posterior/sealed.py"), Path("predict/io.py"), Path("train/errors.py")}


def test_no_module_or_folder_has_the_name_of_another() -> None:
    """But: a method's row, methods/ivon.py, has the name of its optimizer, optim/ivon.py, and of its rule in core."""
    places = defaultdict[str, list[str]](list)
    for module in MODULES:
        if module not in FORWARDING:
            places[module.stem].append(str(module))
    for folder in PACKAGE.rglob("*"):
        if folder.is_dir() and folder.name != "__pycache__":
            places[folder.name].append(f"{folder.relative_to(PACKAGE)}/")
    repeated = {
        name: found
        for name, found in places.items()
        if len(found) > 1 and not set(found) <= {f"{folder}/{name}.py" for folder in ("methods", "optim", "core")}
    }
    assert not repeated, f"give these modules names of their own: {repeated}"


def test_a_test_with_the_name_of_a_module_stands_where_the_module_stands() -> None:
    """The tests of `src/varlearn/train/log.py` are in `tests/train/test_log.py`."""
    folders = defaultdict[str, set[Path]](set)
    for module in MODULES:
        folders[module.stem].add(module.parent)
    elsewhere = {}
    for path in (ROOT / "tests").rglob("test_*.py"):
        test = path.relative_to(ROOT / "tests")
        places = folders[test.stem.removeprefix("test_")]
        if places and (PACKAGE / test.parent).is_dir() and test.parent not in places:
            elsewhere[str(test)] = sorted(map(str, places))
    assert not elsewhere, f"move these tests to the folders of their modules, or rename them: {elsewhere}"


@pytest.mark.parametrize("module", sorted(FORWARDING), ids=str)
def test_an_old_path_only_forwards(module: Path) -> None:
    text = (PACKAGE / module).read_text(encoding="utf-8")
    assert text.startswith('"""Moved to `varlearn.')
    assert len(text.splitlines()) < 10


@pytest.mark.parametrize("folder", LONGEST)
def test_no_file_is_too_long_for_one_reading(folder: str) -> None:
    lengths = Counter({
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in (ROOT / folder).rglob("*.py")
    })  # fmt: skip
    long = {name: lines for name, lines in lengths.items() if lines > LONGEST[folder]}
    assert not long, f"split these at a seam between two purposes: {long}"
