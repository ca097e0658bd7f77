"""`python -m varlearn` is the command line."""

import runpy
import sys

import pytest


def test_the_module_is_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["varlearn", "trian"])
    with pytest.raises(SystemExit) as stopped:
        runpy.run_module("varlearn", run_name="__main__")
    assert stopped.value.code == 2
    assert 'Did you mean "train"?' in capsys.readouterr().err
