"""Tables on screens of all sizes."""

import pytest

from varlearn.cli.show import settings, table

ROWS = [["cifar10-resnet20-ivon", "274,042"], ["digits-sgd", "17,610"]]


def test_a_table_that_fits_is_aligned(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    table(["recipe", "parameters"], ROWS, numbers=1)
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    first, second = (next(line for line in lines if name in line) for name in ("ivon", "sgd"))
    assert first.endswith("274,042")
    assert len(first) == len(second)


@pytest.mark.parametrize("width", ["40", "20", "1"])
def test_one_that_does_not_is_written_row_by_row(
    width: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    table(["recipe", "parameters"], [[f"[a] {cell}" for cell in row] for row in ROWS], title="[b]")
    out = capsys.readouterr().out.replace("\n", "").replace(" ", "")
    assert "recipe[a]digits-sgdparameters[a]17,610" in out  # brackets are no markup
    assert "[b]" in out


def test_a_pipe_gets_whole_lines_without_colours(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    table(["name", "words"], [["a", "x" * 120]])
    out = capsys.readouterr().out
    assert "x" * 120 in out
    assert "\x1b" not in out


def test_settings_by_section(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    settings({"seed": 3, "data": {"subset": None, "ood": ("a", "b")}})
    assert capsys.readouterr().out.splitlines() == ["run seed=3", "data subset=none  ood=a,b"]
