"""The first signal is a request, a second Ctrl-C an order."""

import signal
import threading

import pytest

from varlearn.train.signals import StopRequest


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
