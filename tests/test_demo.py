"""The demo, small and whole."""

from pathlib import Path

import pytest
import torch

from varlearn import demo, posterior
from varlearn.cli import main

ROWS = ("AdamW", "SGD", "VAdamW at the mean", "VAdamW, 64 samples")


def test_a_small_run_prints_a_row_for_each_method_and_ends_with_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["demo", "--steps", "10", "--seeds", "1", "--out", str(tmp_path)]
    assert main(words) == 0
    first = capsys.readouterr().out
    lines = first.splitlines()
    assert [sum(line.startswith(row) for line in lines) for row in ROWS] == [1] * 4
    assert sum(" is best with " in line for line in lines) == 5
    for column in ("accuracy %", "NLL", "ECE", "Brier", "vs. upside down %", "vs. noise %"):
        assert column in first
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert (tmp_path / "report.html").as_uri() in first
    assert "<h1>AdamW, SGD and VAdamW on handwritten digits</h1>" in page
    for card in ("Ambiguous", "Strange: digits-upside-down", "Strange: digits-noise"):
        assert f"<h3>{card}</h3>" in page


def test_what_is_trained_is_not_trained_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = demo.compare(1, tmp_path, steps=3)
    monkeypatch.setattr("varlearn.train.fit", None)
    after = demo.compare(1, tmp_path, steps=3)
    assert all(torch.equal(before[row][0].test, after[row][0].test) for row in ROWS)


def test_scores_of_answers_known_by_hand() -> None:
    sure, unsure = torch.tensor([[0.9, 0.1], [0.2, 0.8]]).log(), torch.tensor([[0.5, 0.5], [0.6, 0.4]]).log()
    scores = demo.score(demo.Answers(sure, {"noise": unsure}), torch.tensor([0, 0]))
    assert scores["accuracy %"] == 50.0
    assert scores["vs. noise %"] == 100.0
    assert scores["Brier"] == pytest.approx((0.01 + 0.01 + 0.64 + 0.64) / 2)


def test_a_sentence_says_so_where_the_average_does_not_win() -> None:
    rows = {"SGD": [{"ECE": 0.01}], "VAdamW at the mean": [{"ECE": 0.03}], "VAdamW, 64 samples": [{"ECE": 0.02}]}
    (found,) = demo.sentences(rows)
    assert found.endswith(": SGD is best with 0.0100; VAdamW, 64 samples has 0.0200.")


def test_the_posterior_of_the_demo_has_a_fitted_temperature(tmp_path: Path) -> None:
    demo.compare(1, tmp_path, steps=20)
    (path,) = tmp_path.glob("runs/demo-vadamw-*/posterior.safetensors")
    found = posterior.load(path)
    assert isinstance(found, posterior.DiagGaussian)
    assert found.temperature != 1.0
