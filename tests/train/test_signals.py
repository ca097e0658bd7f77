"""The first signal is a request, a second Ctrl-C an order."""

import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.train.tiny import tiny_run
from varlearn.train import Interrupted, fit
from varlearn.train.run_loop import RunLoop
from varlearn.train.signals import StopRequest
from varlearn.train.training import Training


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_is_noted(number: signal.Signals) -> None:
    with StopRequest() as stop:
        assert stop.number == 0
        signal.raise_signal(number)
        assert stop.number == number


def test_a_second_ctrl_c_stops_at_once() -> None:
    with StopRequest() as stop:
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert stop.number == signal.SIGTERM


def test_handlers_come_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with StopRequest():
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] != before
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_in_another_thread_nothing_changes() -> None:
    found = []

    def run() -> None:
        with StopRequest() as stop:
            found.append(stop.number)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == [0]


@pytest.mark.usefixtures("tiny_data")
@pytest.mark.parametrize(("owner", "name"), [(Training, "update"), (RunLoop, "_measure")])
def test_a_signal_in_the_last_step_stops_before_the_posterior_is_made(
    owner: type, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tiny_run(steps=3)
    fit(run, tmp_path / "straight", progress=False)
    usual = getattr(owner, name)

    def signalled(self: Any, *words: Any) -> None:
        usual(self, *words)
        if getattr(self, "training", self).step == 3:
            signal.raise_signal(signal.SIGTERM)

    out = tmp_path / "stopped"
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, signalled)
        with pytest.raises(Interrupted, match="stopped after step 3 of 3"):
            fit(run, out, progress=False)
    assert not (out / "posterior.safetensors").exists()
    fit(run, out, resume=True, progress=False)
    files = [folder / "posterior.safetensors" for folder in (out, tmp_path / "straight")]
    assert files[0].read_bytes() == files[1].read_bytes()
