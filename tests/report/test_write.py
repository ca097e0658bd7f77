"""The page: what it says, that it stands alone, and that it is written whole."""

import errno
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest

from varlearn.files.atomic import WriteError
from varlearn.files.checked_json import read_json_lines
from varlearn.report import RunResults, read_run, write_report
from varlearn.report.write import write

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


def headings(text: str) -> list[str]:
    return re.findall(r"<h([1-6])", text.partition("<body>")[2])


def test_the_page_stands_alone_and_shows_the_numbers(folder: Path) -> None:
    path = write_report([folder], folder)
    assert path == folder / "report.html"
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    assert all(link.startswith(("#", "data:")) for link in page.links)
    assert not {"script", "iframe", "object", "embed"} & set(page.tags)
    assert "@import" not in text
    assert "url(" not in text
    assert "<h1>IVON: mlp on digits</h1>" in text
    cells = [re.findall(r">([^<>]+)<", row) for row in re.findall(r'<tr><th scope="row">(.*?)</tr>', text)]
    assert [cell for cell in cells[0] if cell.strip()] == ["IVON", "0.4375", " (best)", "75.00", " (best)", "0.1000",
        " (best)", "0.2000", " (best)"]  # fmt: skip
    assert [cell for cell in cells[1] if cell.strip()][:2] == ["IVON at the mean", "0.5000"]
    assert "87.50" in text  # AUROC against the noise
    assert "Averaging over" not in text  # in one sentence with the confidence
    assert "averaging over 1 samples lowers the NLL of its mean from 0.5 to 0.438" in text
    assert "prefers-color-scheme: dark" in text


def test_figures_are_images_with_words_and_headings_are_in_order(folder: Path) -> None:
    text = write_report([folder], folder).read_text(encoding="utf-8")
    images = re.findall(r"<svg[^>]*>", text)
    assert len(images) >= 6
    assert all('role="img"' in image and re.search(r'aria-label="[^"]{20,}"', image) for image in images)
    levels = [int(level) for level in headings(text)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert '<html lang="en">' in text
    assert 'class="skip" href="#content"' in text
    assert 'id="content"' in text


def test_equal_runs_give_equal_pages_and_other_words_need_no_folder(folder: Path, tmp_path: Path) -> None:
    page = write_report(folder, tmp_path / "new" / "report").read_bytes()
    assert page == write_report([str(folder)], folder).read_bytes()
    assert b"<h1>mine &lt;3&gt;</h1>" in write_report([read_run(folder)], tmp_path, title="mine <3>").read_bytes()


def test_predictions_alone_make_a_page(folder: Path, tmp_path: Path) -> None:
    found = read_run(folder).predictions["test/averaged"]
    text = write_report({"mine": found, "yours": found}, tmp_path).read_text(encoding="utf-8")
    assert "mine has the lowest NLL" in text
    assert "Reliability" in text
    assert "Settings" not in text
    assert "Reliability" in write_report(found, tmp_path).read_text(encoding="utf-8")  # without a name
    with pytest.raises(TypeError, match="a int cannot be reported; give the folder of a run, predictions, RunResults"):
        write_report([3], tmp_path)  # type: ignore[list-item]
    with pytest.raises(ValueError, match="no results to report; give the folder of at least one run"):
        write_report([], tmp_path)


def test_something_with_results_makes_a_page(folder: Path, tmp_path: Path) -> None:
    class Fitted:
        def results(self) -> RunResults:
            return RunResults("mine", "ivon", read_run(folder).predictions)

    text = write_report(Fitted(), tmp_path).read_text(encoding="utf-8")
    assert "IVON at the mean" in text
    assert "noise" in text


def test_seeds_are_one_row_and_fifteen_settings_are_drawn_apart(folder: Path, tmp_path: Path) -> None:
    run = read_run(folder)
    seeds = [replace(run, name=f"{seed}", config={**run.config, "seed": seed}) for seed in range(3)]
    text = write_report(seeds, tmp_path).read_text(encoding="utf-8")
    assert "over 3 seeds" in text
    assert text.count('<tr><th scope="row"><span class="keyed">') == 4  # two kinds, test set and noise
    settings = [
        replace(run, name=f"{lr}", config={**run.config, "optim": {"name": "ivon", "lr": lr}}) for lr in range(15)
    ]
    path = write_report(settings, tmp_path)
    text = path.read_text(encoding="utf-8")
    assert path.stat().st_size < 1_000_000
    assert set(re.findall(r'class="line (c\d)', text)) == {"c0"}  # one method, one colour
    reliability = text.partition("<h3>Reliability</h3>")[2].partition("</figure>")[0]
    assert reliability.count("<svg") == 15
    assert "15 runs: 15 settings" in text


def test_the_page_needs_no_matplotlib(folder: Path, tmp_path: Path) -> None:
    code = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("matplotlib", "cycler", "PIL"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
from varlearn.report import write_report
write_report([sys.argv[1]], sys.argv[2])
"""
    subprocess.run([sys.executable, "-c", code, str(folder), str(tmp_path)], check=True, timeout=600)
    assert (tmp_path / "report.html").exists()


def test_a_run_without_results_has_its_settings_shown(folder: Path, tmp_path: Path) -> None:
    for name in ("env.json", "log.jsonl", "metrics.json", "predictions.safetensors"):
        (folder / name).unlink()
    text = write_report([folder], tmp_path / "x").read_text(encoding="utf-8")
    assert ">Settings</h2>" in text
    assert ">Scores</h2>" not in text
    assert "<svg" not in text
    assert "These runs have no scores yet" in text


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
    test, _, validation = text.partition(
        "Scores on validation data. Temperature of the posterior, fitted to them: IVON 0.25"
    )
    assert "0.4375" in test
    assert "0.6875" in validation
    assert "<h3>Validation NLL</h3>" in text
    assert "<h3>Test NLL</h3>" not in text
    assert "On validation data at the mean, while training." in text


def test_half_a_file_is_never_seen(tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    target.write_text("old")

    def fails(path: Path) -> None:
        path.write_text("ne")
        raise OSError(28, "No space left on device")

    with pytest.raises(WriteError, match=r"cannot write .*page.html: No space left on device.*free space"):
        write(target, fails)
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
