"""The most memory that a run has held."""

import sys

import pytest
import torch

from varlearn.train.peak_memory import peak_bytes, reset_peak

CPU = torch.device("cpu")


@pytest.mark.skipif(sys.platform != "linux", reason="the peak can be reset on Linux alone")
def test_the_peak_rises_with_what_is_held_and_falls_when_it_is_reset() -> None:
    reset_peak(CPU)
    before = peak_bytes(CPU)
    held = torch.ones(25_000_000)
    during = peak_bytes(CPU)
    assert before is not None
    assert during is not None
    assert during - before > 0.9 * held.numel() * 4
    del held
    after = peak_bytes(CPU)
    assert after is not None
    assert after > during - 0.1 * 25_000_000 * 4  # the kernel's count of pages is not exact to the page
