"""The documents cannot drift: their links and paths lead somewhere, their make targets exist, their Python runs.

A block marked `python` is executed, those of one file in order and in one namespace, in an empty folder; one marked
`python no-run` is only compiled; one that holds a `>>>` session is run as a doctest.
"""

import doctest
import os
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import pytest

REPO = Path(__file__).parents[1]
MAP = REPO / "docs" / "map.md"
SKIPPED = {"build", "dist", "runs", "site"}


def documents() -> list[Path]:
    """Every Markdown file of the repository, leaving out hidden folders and what is built or run."""
    found: list[Path] = []
    for folder, folders, files in os.walk(REPO):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in SKIPPED]
        found += [Path(folder, name) for name in files if name.endswith(".md")]
    return sorted(found)


class Fence(NamedTuple):
    """A fenced block: what stands behind the opening marks, the text, and the line on which the text begins."""

    info: str
    text: str
    line: int


def split(markdown: str) -> tuple[str, list[Fence]]:
    """Separate prose from fenced blocks; the prose keeps its line numbers."""
    prose, fences, inside, opening = list[str](), list[Fence](), list[str](), None
    for number, line in enumerate(markdown.splitlines(), start=1):
        mark = re.match(r"\s*(`{3,}|~{3,})\s*([^`]*)$", line)
        if opening is None and mark:
            opening, info, start = mark[1], mark[2].strip(), number + 1
        elif opening and mark and mark[1].startswith(opening) and not mark[2]:
            fences.append(Fence(info, textwrap.dedent("\n".join(inside)) + "\n", start))
            opening, inside = None, []
        elif opening:
            inside.append(line)
        prose.append("" if opening or mark else line)
    assert opening is None, f"the block opened before line {start} is never closed"
    return "\n".join(prose), fences


def code_spans(prose: str) -> list[str]:
    """The texts between single or double backticks."""
    return [span.strip() for _, span in re.findall(r"(?<!`)(`{1,2})(?!`)(.+?)(?<!`)\1(?!`)", prose)]


def links(prose: str) -> list[str]:
    """Targets of inline links and images, of reference definitions, and of `href` and `src` attributes."""
    prose = re.sub(r"(?<!`)(`{1,2})(?!`)(.+?)(?<!`)\1(?!`)", "", prose)
    inline = re.findall(r"\]\(\s*<?([^)\s>]+)>?(?:\s+[\"'][^\"']*[\"'])?\s*\)", prose)
    definitions = re.findall(r"^\s{0,3}\[[^\]^]+\]:\s*<?(\S+?)>?(?:\s|$)", prose, flags=re.MULTILINE)
    return inline + definitions + re.findall(r"(?:href|src)=[\"']([^\"']+)[\"']", prose)


def anchors(markdown: str) -> set[str]:
    """The fragments that the headings of a document answer to, as GitHub derives them, and its explicit ids."""
    found: set[str] = set()
    prose, _ = split(markdown)
    for title in re.findall(r"^#{1,6}\s+(.+?)\s*#*$", prose, flags=re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)
        slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        repeated = 0
        while (name := f"{slug}-{repeated}" if repeated else slug) in found:
            repeated += 1
        found.add(name)
    return found | set(re.findall(r"(?:id|name)=[\"']([^\"']+)[\"']", prose))


def dead_links(document: Path) -> Iterator[str]:
    """Relative links of `document` whose file or heading does not exist."""
    text = document.read_text(encoding="utf-8")
    for link in links(split(text)[0]):
        if re.match(r"[a-z][a-z0-9+.-]*:", link, flags=re.IGNORECASE):
            continue
        path, _, fragment = unquote(link).partition("#")
        target = (REPO / path.lstrip("/") if path.startswith("/") else document.parent / path) if path else document
        if not target.exists():
            yield f"{link}: no such file"
        elif fragment and target.suffix == ".md" and fragment not in anchors(target.read_text(encoding="utf-8")):
            yield f"{link}: no such heading"


def dead_paths(document: Path) -> Iterator[str]:
    """Paths in backticks that do not exist; `tests/test_x.py::test_y` must define `test_y`.

    Elsewhere only what begins with a folder of the repository is taken for a path, so that output names such as
    `checkpoint/` pass. The map is read strictly: there every file name counts, from the root, `docs/` or the package.
    """
    ignored = {line.strip("/") for line in (REPO / ".gitignore").read_text(encoding="utf-8").splitlines()}
    tops = {entry.name for entry in REPO.iterdir() if entry.is_dir() and not entry.name.startswith(".")} - ignored
    strict = document == MAP
    bases = [REPO, REPO / "docs", REPO / "src" / "varlearn"] if strict else [REPO, document.parent]
    for span in code_spans(split(document.read_text(encoding="utf-8"))[0]):
        path, _, name = span.partition("::")
        if not re.fullmatch(r"[\w.*-]+(/[\w.*-]+)*/?", path):
            continue
        rooted = "/" in path and path.split("/")[0] in tops
        if not rooted and not (strict and re.search(r"\.(py|md|json|toml|txt|tex|html)$|\w/$", path)):
            continue
        matches = [match for base in bases for match in base.glob(path.rstrip("/"))]
        if not matches:
            yield f"{span}: no such path"
        elif name and not any(
            re.search(
                rf"\b(def|class) {re.escape(name.split('[')[0].split('::')[-1])}\b", match.read_text(encoding="utf-8")
            )
            for match in matches
            if match.is_file()
        ):
            yield f"{span}: {path} does not define it"


def unknown_targets(document: Path) -> Iterator[str]:
    """Targets of `make` that `document` names, in backticks or in a shell block, and the Makefile lacks."""
    known = set(re.findall(r"^([a-z][\w-]*):", (REPO / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    prose, fences = split(document.read_text(encoding="utf-8"))
    shell = [
        line for fence in fences if fence.info in ("sh", "bash", "shell", "console") for line in fence.text.splitlines()
    ]
    for line in code_spans(prose) + shell:
        command = re.match(r"(?:\$ )?make +([a-z][\w-]*)(?![\w=])", line)
        if command and command[1] not in known:
            yield f"make {command[1]}"


def run_python_blocks(document: Path) -> int:
    """Run the Python of `document` in one namespace and count the blocks; tracebacks name the document's lines."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    ran = 0
    for info, text, line in split(document.read_text(encoding="utf-8"))[1]:
        language, _, mark = info.partition(" ")
        if language not in ("python", "py", "pycon"):
            continue
        assert mark in ("", "no-run"), (
            f"{document}:{line}: the mark {mark!r} is unknown; write 'python' or 'python no-run'"
        )
        if text.lstrip().startswith(">>>"):
            test = doctest.DocTestParser().get_doctest(text, namespace, document.name, str(document), line - 1)
            flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
            if mark != "no-run":
                doctest.DebugRunner(optionflags=flags).run(test, clear_globs=False)
                namespace = test.globs
                ran += 1
            continue
        code = compile("\n" * (line - 1) + text, str(document), "exec")
        if mark != "no-run":
            exec(code, namespace)
            ran += 1
    return ran


DOCUMENTS = documents()
each_document = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(REPO)))


@each_document
def test_links_resolve(document: Path) -> None:
    assert list(dead_links(document)) == []


@each_document
def test_paths_exist(document: Path) -> None:
    assert list(dead_paths(document)) == []


@each_document
def test_make_targets_exist(document: Path) -> None:
    assert list(unknown_targets(document)) == []


@each_document
def test_python_runs(document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_python_blocks(document)


@pytest.fixture
def page(tmp_path: Path) -> Path:
    return tmp_path / "page.md"


@pytest.mark.parametrize(
    ("text", "dead"),
    [
        ("[a](gone.md)", ["gone.md"]),
        ("![a](gone.png 'a title')", ["gone.png"]),
        ("[a]\n\n[a]: gone.md", ["gone.md"]),
        ('<img src="gone.svg">', ["gone.svg"]),
        ("[a](#gone)", ["#gone"]),
        ("# The σ of h\n# The σ of h\n[a](#the-σ-of-h-1) [b](#the-σ-of-h-2)", ["#the-σ-of-h-2"]),
        ("[a](page.md) [b](https://example.org/gone) [c](page.md#a-b)\n## A `b`", []),
        ("`[a](gone.md)`\n```text\n[a](gone.md)\n```", []),
    ],
)
def test_a_dead_link_is_found(page: Path, text: str, dead: list[str]) -> None:
    page.write_text(text, encoding="utf-8")
    assert [line.split(": ")[0] for line in dead_links(page)] == dead


@pytest.mark.parametrize(
    ("span", "alive"),
    [
        ("tests/conftest.py", True),
        ("tests/*.py", True),
        ("tests/gone.py", False),
        ("tests/gone*.py", False),
        ("tests/test_docs.py::test_a_dead_path_is_found", True),
        ("tests/test_docs.py::test_" + "gone", False),
        ("checkpoint/", True),
        ("1/2", True),
        ("a + tests/gone.py", True),
    ],
)
def test_a_dead_path_is_found(page: Path, span: str, alive: bool) -> None:
    page.write_text(f"see `{span}`.", encoding="utf-8")
    assert (list(dead_paths(page)) == []) == alive


@pytest.mark.parametrize(("span", "alive"), [("gone.py", False), ("gone/", False), ("types.pyi", True), ("σ/2", True)])
def test_the_map_is_read_strictly(page: Path, span: str, alive: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "MAP", page)
    page.write_text(f"see `{span}`.", encoding="utf-8")
    assert (list(dead_paths(page)) == []) == alive


def test_an_unknown_make_target_is_found(page: Path) -> None:
    page.write_text(
        "`make help`, `make gone`, `make it so=1`\n```sh\nmake test ARGS=-x\n$ make lost\n```", encoding="utf-8"
    )
    assert list(unknown_targets(page)) == ["make gone", "make it", "make lost"]


def test_blocks_share_one_namespace_and_no_run_is_compiled(page: Path) -> None:
    page.write_text(
        "```python\nx = 1\n```\n- item\n\n  ```python\n  x += 1\n  ```\n```python no-run\nx = gone\n```\n"
        "```pycon\n>>> x\n2\n```\n```diff\n-x\n```\n",
        encoding="utf-8",
    )
    assert run_python_blocks(page) == 3


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("```python\nassert 1 > 2\n```", AssertionError),
        ("```python no-run\nx =\n```", SyntaxError),
        ("```python norun\n```", AssertionError),
        ("```python\n>>> 1 + 1\n3\n```", doctest.DocTestFailure),
        ("```python\n", AssertionError),
    ],
)
def test_a_broken_block_is_found(page: Path, text: str, error: type[Exception]) -> None:
    page.write_text(text, encoding="utf-8")
    with pytest.raises(error):
        run_python_blocks(page)
