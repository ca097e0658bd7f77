"""Lines with rate and time left."""

import re

import pytest

from varlearn.train.step_progress import plain_lines, training_progress


def test_lines_come_at_first_every_ten_seconds_and_at_last(capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    update = plain_lines(total=40, start=10, clock=lambda: now)
    for step in range(11, 41):
        now += 1.0
        update(step, f"loss {step}")
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[1] for line in lines] == ["11/40", "21/40", "31/40", "40/40"]
    assert lines[1] == "step 21/40  loss 21  1 steps/s  0:19 left"


def test_silence(capsys: pytest.CaptureFixture[str]) -> None:
    with training_progress(2, show=False) as update:
        update(2, "done")
    assert capsys.readouterr().err == ""


def test_without_a_terminal_there_are_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with training_progress(2) as update:
        update(2, "done")
    assert "step 2/2  done" in capsys.readouterr().err


def test_in_a_terminal_there_is_a_bar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("rich")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with training_progress(2, start=1) as update:
        update(2, "loss 0.5")
    assert "loss 0.5  " in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", capsys.readouterr().err)
