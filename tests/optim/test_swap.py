"""Means come back and differences stay behind, also where an interrupt falls in between."""

import pytest
import torch
from torch import Tensor

from varlearn.optim import swap
from varlearn.optim.swap import Swap


def pairs() -> list[tuple[Tensor, Tensor]]:
    """Large, small, empty and permuted ones, as (sample, mean)."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(0,), (1000,), (0, 4), (7, 2), (40, 30), (3, 5)]
    means = [torch.randn(shape, generator=generator) for shape in shapes]
    means[3] = means[3].t()
    return [(mean + torch.randn(mean.shape, generator=generator), mean) for mean in means]


@pytest.mark.parametrize("piece", [1 << 17, 256, 7])
def test_a_swap(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swap, "_PIECE", piece)
    work = [(torch.empty_like(copy).copy_(param), copy) for param, copy in pairs()]
    exchange = Swap(work)
    exchange.run()
    for (param, copy), (sample, mean) in zip(work, pairs(), strict=True):
        assert torch.equal(param, mean)
        assert torch.equal(copy, sample - mean)
    assert exchange.is_whole
    exchange.run()  # nothing is left to do
    assert exchange.is_whole
    assert torch.equal(work[1][0], pairs()[1][1])


@pytest.mark.parametrize("operation", ["_foreach_sub", "_foreach_copy_"])
@pytest.mark.parametrize("call", range(8))
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_an_interrupt_does_not_lose_the_mean(
    operation: str, call: int, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(swap, "_PIECE", 500)
    work = [(torch.empty_like(copy).copy_(param), copy) for param, copy in pairs()]
    exchange, original, calls = Swap(work), getattr(torch, operation), 0

    def interrupted(*args: object) -> object:
        nonlocal calls
        calls += 1
        if calls == call + 1 and not after:
            raise KeyboardInterrupt
        result = original(*args)
        if calls == call + 1:
            raise KeyboardInterrupt
        return result

    with monkeypatch.context() as patch:
        patch.setattr(torch, operation, interrupted)
        try:
            exchange.run()
            was_interrupted = False
        except KeyboardInterrupt:
            was_interrupted = True
    exchange.run()
    assert all(torch.equal(param, mean) for (param, _), (_, mean) in zip(work, pairs(), strict=True))
    assert exchange.is_whole is not was_interrupted
