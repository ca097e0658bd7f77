"""Threads that evaluate and save beside a training: a few cases, and proofs that faults would be seen."""

import pytest
import torch
from torch import nn

from soak import processes, threads
from soak.part import chance
from varlearn.optim.sampling.thread_lock import ThreadLock


@pytest.mark.parametrize("way", threads.WAYS)
def test_a_training_beside_threads_is_the_one_alone(way: str) -> None:
    fault, measured = threads._tried("ivon", "foreach", "fast", way, chance(1, 5), chance(1, 5))
    assert fault == ""
    assert measured["evaluations beside a training"] > 0


def test_evaluations_without_the_lock_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ThreadLock, "enter", lambda self, holder: None)
    monkeypatch.setattr(ThreadLock, "leave", lambda self, holder: None)
    faults = []
    for number in range(3):
        try:
            faults.append(threads._tried("ivon", "foreach", "fast", "block", chance(1, number), chance(1, number))[0])
        except RuntimeError as error:  # step() finds the sample of an evaluation in the weights
            faults.append(str(error))
    assert any(faults)


@pytest.mark.parametrize("kind", ["ivon", "vadamw"])
def test_a_forked_training_goes_on_as_in_its_parent(kind: str) -> None:
    assert processes._tried("fork", kind, "foreach", "fast", "block", 3) == ""


def test_a_child_that_starts_elsewhere_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def shifted(trained: tuple[nn.Module, object], way: str) -> str:
        with torch.no_grad():
            for param in trained[0].parameters():
                param.add_(1.0)
        return original(trained, way)  # type: ignore[arg-type]

    original = processes._go_on
    calls = iter([original, shifted, original])
    monkeypatch.setattr(processes, "_go_on", lambda trained, way: next(calls)(trained, way))
    assert "left" in processes._tried("fork", "ivon", "loop", "fast", "closure", 3)
