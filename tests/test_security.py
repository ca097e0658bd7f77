"""What SECURITY.md promises: data never become code, downloads are verified, versions are pinned."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from varlearn.data import download, sources
from varlearn.data.errors import DownloadError

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "varlearn"

# Functions and modules that turn data into code, start programs, or unpack objects of any class.
FORBIDDEN = re.compile(
    r"(torch|pickle|dill|joblib|marshal|shelve|cloudpickle|jsonpickle)\.(load|loads|Unpickler|open)"
    r"|eval|exec|compile|__import__|input|runpy\.\w+|os\.(system|popen|exec\w+|spawn\w+)"
    r"|subprocess\.\w+|ctypes\.(CDLL|cdll|PyDLL|WinDLL)|yaml\.(load|unsafe_load|full_load)|torch\.(hub|jit|package)\.\w+"
    r"|(tarfile|zipfile|archive)\.(extract|extractall)|shutil\.unpack_archive|tempfile\.mktemp|socket\.socket"
)
MODULES = {"pickle", "dill", "joblib", "marshal", "shelve", "cloudpickle", "jsonpickle", "xmlrpc", "code", "runpy"}

# (file, call) -> why it is safe
ALLOWED = {
    ("optim/engine/native/compilation.py", "subprocess.run"): "the C compiler, on sources of the package alone",
    (
        "optim/engine/native/compilation.py",
        "ctypes.CDLL",
    ): "the kernel that was compiled from them; its folder is private",
}


def calls(path: Path) -> Iterator[tuple[str, ast.Call]]:
    """Every call in a source file with its dotted name, "" where it has none."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            yield dotted(node.func), node


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return ""


SOURCES = sorted(PACKAGE.rglob("*.py"))


def test_nothing_turns_data_into_code() -> None:
    found = {
        (path.relative_to(PACKAGE).as_posix(), name)
        for path in SOURCES
        for name, _ in calls(path)
        if FORBIDDEN.fullmatch(name)
    }
    assert found - ALLOWED.keys() == set(), "give the reason in ALLOWED, or do it another way"
    assert ALLOWED.keys() - found == set(), "these are gone: remove them from ALLOWED"


def test_no_module_that_unpickles_is_imported() -> None:
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {name.partition(".")[0] for name in names} & MODULES, path


def test_late_imports_have_constant_names() -> None:
    for path in SOURCES:
        for name, call in calls(path):
            if name.endswith("import_module"):
                assert isinstance(call.args[0], ast.Constant), path


def test_numpy_reads_no_pickles() -> None:
    for path in SOURCES:
        for name, call in calls(path):
            if re.fullmatch(r"(np|numpy)\.load", name):
                assert {word.arg: ast.unparse(word.value) for word in call.keywords}.get("allow_pickle") == "False", (
                    path
                )


@pytest.mark.parametrize(
    ("code", "name"),
    [("torch.load(p)", "torch.load"), ("eval(x)", "eval"), ("os.system(x)", "os.system"), ("a.b.c()", None)],
)
def test_the_search_finds_what_it_looks_for(code: str, name: str | None, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(code)
    assert [found for found, _ in calls(tmp_path / "a.py") if FORBIDDEN.fullmatch(found)] == ([name] if name else [])


def test_a_download_is_not_there_before_its_checksum_fits(tmp_path: Path) -> None:
    (tmp_path / "evil").write_bytes(b"evil")
    target = tmp_path / "cache" / "data.bin"
    with pytest.raises(DownloadError, match="its checksum is"):
        download.fetch(f"file://{tmp_path}/evil", target, "900150983cd24fb0d6963f7d28e17f72")
    assert list(target.parent.iterdir()) == []


def test_published_files_are_fetched_by_https_or_verified() -> None:
    found = []
    for path in (PACKAGE / "data").rglob("*.py"):
        for name, call in calls(path):
            if name.endswith("Published"):
                words = {word.arg: word.value for word in call.keywords}
                arguments = [*call.args, *(words[key] for key in ("path", "url", "checksum") if key in words)]
                found.append((path.name, [ast.unparse(argument) for argument in arguments]))
    assert found
    assert sources.Published.__dataclass_fields__.keys() == {"path", "url", "checksum"}
    for name, arguments in found:
        plain = [one for one in arguments if one.startswith(("'http://", 'f"http://', "f'http://"))]
        assert not plain or len(arguments) == 3, f"{name}: {arguments} is not encrypted and has no checksum"


def test_versions_are_pinned() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = [line for line in lines if line.strip() and not line.startswith("#")]
    assert len(pinned) > 20
    assert [line for line in pinned if not re.match(r"[\w.-]+==[\w.+!]+(\s*;.*)?$", line)] == []


def test_the_policy_names_what_it_promises() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    for word in ("pickle", "weights_only", "report", "checksum", "limits"):
        assert word in text.lower()
