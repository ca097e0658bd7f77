"""`varlearn reproduce` on a table of tiny runs."""

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from varlearn.cli import main
from varlearn.recipes import digits, tables
from varlearn.recipes.paper import Published
from varlearn.recipes.tables import Line


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Table 8 becomes one line of SGD and two of IVON, on digits, four steps each."""
    monkeypatch.setenv("COLUMNS", "200")
    changes = {"train": {"steps": 4, "eval_every": 0}, "evaluate": {"samples": 2}}

    def table8(scale: str) -> tables.Table:
        lines = []
        for method in ("sgd", "ivon@mean", "ivon"):
            run = digits(method.removesuffix("@mean"))  # type: ignore[arg-type]
            run = replace(
                run, train=replace(run.train, steps=4, eval_every=0), evaluate=replace(run.evaluate, samples=2)
            )
            path = ("averaged" if method == "ivon" else "mean",)
            lines.append(Line("digits", "mlp", method, "", run, changes, path, {"accuracy": Published(12.34, 0.56)}))
        return tables.Table("table8", "Tiny", (tables.ACCURACY,), tuple(lines))

    monkeypatch.setitem(tables.TABLES, "table8", table8)


def test_ours_stand_beside_the_papers_and_nothing_is_run_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["reproduce", "table8", "--seeds", "2", "--out", str(tmp_path), "--quiet"]
    assert main(words) == 0
    first = capsys.readouterr()
    rows = [line for line in first.out.splitlines() if "ours" in line or "paper" in line]
    assert len(rows) == 6
    assert all("12.34 ± 0.56" in row for row in rows[1::2])
    results = json.loads((tmp_path / "results.json").read_text())
    ours = results["lines"][0]["metrics"]["accuracy"]
    assert f"{ours['mean']:.2f} ± {ours['std']:.2f}" in rows[0]
    assert "n = 2" in rows[0]
    assert main(words) == 0
    second = capsys.readouterr()
    assert second.out == first.out
    assert second.err.count("is finished already") == 4


def test_jobs_are_commands_and_are_gathered_afterwards(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jobs, out = tmp_path / "jobs.txt", tmp_path / "my runs"
    base = ["reproduce", "table8", "--methods", "ivon", "--out", str(out)]
    assert main([*base, "--seeds", "2", "--jobs", str(jobs)]) == 0
    commands = [shlex.split(line) for line in jobs.read_text().splitlines()]
    assert [words[:3] for words in commands] == [["varlearn", "train", "digits-ivon"]] * 2
    assert not out.exists()
    for words in commands:
        assert main([*words[1:], "--quiet"]) == 0
    capsys.readouterr()
    assert main([*base, "--seeds", "3", "--collect"]) == 0
    assert "ours, n = 2" in capsys.readouterr().out
    assert main([*base, "--seeds", "3", "--jobs", "-"]) == 0
    left = capsys.readouterr().out.splitlines()
    assert len(left) == 1
    assert "--seed 2 " in left[0]


def test_a_failed_run_is_named_and_the_rest_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "digits-sgd-steps=4-eval_every=0-samples=2-small-seed0").write_text("a file where a folder should be")
    assert main(["reproduce", "table8", "--seeds", "1", "--out", str(tmp_path), "--quiet"]) == 1
    captured = capsys.readouterr()
    assert "failed: digits-sgd" in captured.err
    assert "ours, n = 0" in captured.out
    assert "ours, n = 1" in captured.out
