import importlib.util
import io

import pytest

from varlearn.prediction import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def run(show: bool | None) -> None:
    with progress.tracked("predict", 3, show) as advance:
        advance(1)
        advance(2)


def test_nothing_where_no_terminal_is(capsys: pytest.CaptureFixture[str]) -> None:
    run(None)
    run(False)
    assert capsys.readouterr() == ("", "")


def test_plain_lines_where_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    run(True)
    assert capsys.readouterr() == ("", "predict: 3/3\n")


def test_plain_lines_come_now_and_then(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_LINE_EVERY", -1.0)
    run(True)
    assert capsys.readouterr().err == "predict: 1/3\npredict: 3/3\n"


@pytest.mark.parametrize("show", [None, True])
def test_a_bar_in_a_terminal(monkeypatch: pytest.MonkeyPatch, show: bool | None) -> None:
    pytest.importorskip("rich")
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    run(show)
    assert terminal.getvalue() == ""  # short work shows nothing
    monkeypatch.setattr(progress, "_BAR_AFTER", -1.0)
    run(show)
    assert "predict" in terminal.getvalue()


def test_rich_is_not_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", Terminal())
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    run(None)
    run(True)
    assert progress.sys.stderr.getvalue() == "predict: 3/3\n"  # type: ignore[attr-defined]


def test_an_error_inside_ends_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich")
    monkeypatch.setattr("sys.stderr", Terminal())
    monkeypatch.setattr(progress, "_BAR_AFTER", -1.0)
    with pytest.raises(KeyError), progress.tracked("predict", 3, None) as advance:  # noqa: PT012
        advance(1)
        raise KeyError
