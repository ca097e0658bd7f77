"""The documentation site: its navigation and the pages are the same set, and it builds without a warning."""

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_docs import links, split

REPO = Path(__file__).parents[1]


def pages_in_navigation() -> list[str]:
    nav = (REPO / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2].partition("\n\n")[0]
    return re.findall(r": (\S+\.md)$", nav, flags=re.MULTILINE)


def test_every_page_is_in_the_navigation_once() -> None:
    docs = REPO / "docs"
    there = sorted(str(path.relative_to(docs)) for path in docs.rglob("*.md"))
    assert sorted(pages_in_navigation()) == there


def test_no_page_links_to_a_file_that_the_site_does_not_have() -> None:
    docs = REPO / "docs"
    outside = {
        f"{page.relative_to(docs)}: {link}"
        for page in docs.rglob("*.md")
        for link in links(split(page.read_text(encoding="utf-8"))[0])
        if not re.match(r"[a-z]+:|#", link) and not (page.parent / link).resolve().is_relative_to(docs)
    }
    assert outside == set(), "write the path in backticks; the site holds docs/ alone"


@pytest.mark.skipif(importlib.util.find_spec("zensical") is None, reason="zensical is not installed: `make docs` does")
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    for name in ("src", "tools"):
        (tmp_path / name).symlink_to(REPO / name)
    shutil.copy(REPO / "mkdocs.yml", tmp_path)
    shutil.copytree(REPO / "docs", tmp_path / "docs")
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "VAdamW" in (tmp_path / "site" / "api" / "optim" / "index.html").read_text(encoding="utf-8")
