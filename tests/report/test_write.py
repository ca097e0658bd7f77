"""The page: what it says, that it stands alone, and that it is written whole."""

import errno
import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from varlearn.files.atomic import WriteError
from varlearn.files.checked_json import read_json_lines
from varlearn.report import write_report

FIGURES = (
    "entropy-ivon-at-the-mean",
    "entropy-ivon-averaged",
    "loss",
    "reliability",
    "std",
    "test-accuracy",
    "test-nll",
)
VOID = {"meta", "br", "link", "img", "hr", "input"}


class Page(HTMLParser):
    """Collects what a page refers to, and checks that every element is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.tags: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href", "srcset")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_stands_alone_and_shows_the_numbers(folder: Path) -> None:
    path = write_report([folder], folder)
    assert path == folder / "report.html"
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    assert all(link.startswith("#") for link in page.links)  # nothing but parts of its own drawings
    assert not {"script", "link", "iframe", "img"} & set(page.tags)
    assert "@import" not in text
    assert re.findall(r"url\((?!#)", text) == []
    assert page.tags.count("svg") == len(FIGURES)
    assert "<h1>ivon &amp; co</h1>" in text
    rows = re.findall(r"<tr><td>ivon &amp; co</td><td>IVON</td><td>(.*?)</td>(.*?)</tr>", text)
    cells = [re.findall(r">([^<>]*)</td>", row) for _, row in rows]
    assert [kind for kind, _ in rows] == ["at the mean", "averaged"] * 2
    assert cells[0] == ["75.00", "0.5000", "0.1000", "0.2000", "–"]
    assert cells[1] == ["75.00", "0.4375", "0.1000", "0.2000", "–"]
    assert cells[2] == ["noise", "87.50", "50.00", "25.00"]
    assert "prefers-color-scheme: dark" in text
    assert "currentColor" in text
    assert "#010203" not in text


def test_figures_are_written_as_png_and_svg_and_equal_runs_give_equal_pages(folder: Path, tmp_path: Path) -> None:
    page = write_report([folder], tmp_path / "new" / "report").read_bytes()
    found = sorted(path.name for path in (tmp_path / "new" / "report" / "figures").iterdir())
    assert found == sorted(f"{name}.{kind}" for name in FIGURES for kind in ("png", "svg"))
    assert all((tmp_path / "new/report/figures" / name).read_bytes()[:4] == b"\x89PNG" for name in found[::2])
    assert page == write_report([folder], folder).read_bytes()


def test_several_runs_side_by_side(folder: Path, tmp_path: Path) -> None:
    (folder / "log.jsonl").unlink()
    text = write_report([folder, folder], tmp_path / "both").read_text(encoding="utf-8")
    assert "ivon &amp; co (2) averaged" in text
    assert "2 runs" in text


def test_a_run_without_results_has_its_settings_shown(folder: Path, tmp_path: Path) -> None:
    for name in ("env.json", "log.jsonl", "metrics.json", "predictions.safetensors"):
        (folder / name).unlink()
    text = write_report([folder], tmp_path / "x").read_text(encoding="utf-8")
    assert "<h2>Settings</h2>" in text
    assert "<h2>Metrics</h2>" not in text
    assert "<svg" not in text


def test_a_full_disk_leaves_the_old_page(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = folder / "report.html"
    page.write_text("old")
    (folder / "predictions.safetensors").unlink()
    (folder / "log.jsonl").unlink()

    def full(self: Path, *args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space left"):
        write_report([folder], folder)
    assert page.read_bytes() == b"old"
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


def test_a_full_disk_is_named_with_its_file_and_the_old_report_stays(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    before = write_report([folder], out).read_bytes()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WriteError, match=r"cannot write .*out/.*: No space left on device.*free space") as caught:
        write_report([folder], out)
    assert caught.value.exit_code == 3
    assert (out / "report.html").read_bytes() == before
    assert not [path for path in out.rglob(".*")]


def test_validation_and_test_data_are_shown_apart(folder: Path) -> None:
    metrics = json.loads((folder / "metrics.json").read_text())
    held_out = {kind: {"accuracy": 0.5, "nll": nll} for kind, nll in (("mean", 0.8125), ("averaged", 0.6875))}
    (folder / "metrics.json").write_text(json.dumps(metrics | {"validation": held_out, "temperature": 0.25}))
    lines = read_json_lines(folder / "log.jsonl").records
    marked = [line | {"split": "validation"} if "eval" in line else line for line in lines]
    (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in marked))
    text = write_report([folder], folder).read_text(encoding="utf-8")
    test, _, validation = text.partition("on validation data; temperature of the posterior, fitted to them: 0.25")
    assert "on the test set" in test
    assert "0.4375" in test
    assert "0.6875" in validation or "0.6875" in test.rpartition("on the test set")[2]
    names = {path.stem for path in (folder / "figures").glob("*.svg")}
    assert {"validation-nll", "validation-accuracy"} <= names
    assert not {"test-nll", "test-accuracy"} & names
    assert "Validation NLL at the mean, while training." in text
