"""A model of 10,000 parameter tensors: the time of a step beside AdamW's, and the memory that the optimizer keeps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from soak.faulty_training import ENGINES
from soak.part import Outcome, Part
from varlearn.optim import IVON, VAdamW

COUNT, SIZE, STEPS = 10_000, 16, 3
_SLOWDOWN = 12.0  # of a step with its block, beside AdamW(foreach=True): most of it is Python for each tensor
_CASES: list[tuple[str, str]] = [(name, engine) for name in ("ivon", "vadamw") for engine in ("foreach", "native")]


def cases(numbers: range, seed: int) -> Iterator[Outcome]:
    """Each number is an optimizer with an engine."""
    for name, engine in _CASES[numbers.start : numbers.stop]:
        seconds, state = timed(lambda params, how=(name, engine): _ours(params, *how), block=True)
        plain_seconds, plain_state = timed(lambda params: torch.optim.AdamW(params, foreach=True), block=False)
        slowdown, memory = seconds / plain_seconds, state / plain_state
        measured = {f"times AdamW's step ({name}, {engine})": slowdown, "times AdamW's state": memory}
        kept = slowdown <= _SLOWDOWN and memory <= 1.6
        yield Outcome(name, kept, f"{engine}: step {slowdown:.1f} times, state {memory:.2f} times AdamW's", measured)


def _ours(params: list[Tensor], name: str, engine: str) -> Any:
    if name == "ivon":
        return IVON(params, lr=0.1, ess=100.0, seed=0, **ENGINES[engine])
    return VAdamW(params, n=100, batch_size=10, seed=0, **ENGINES[engine])


def timed(make: Callable[[list[Tensor]], Any], block: bool) -> tuple[float, float]:
    """Seconds of the fastest step, without backward, and bytes of state."""
    params: list[Tensor] = [nn.Parameter(torch.zeros(SIZE)) for _ in range(COUNT)]
    opt = make(params)
    fastest = float("inf")
    for _ in range(STEPS):
        began = time.perf_counter()
        if block:
            with opt.sampled_params(train=True):
                began += _set_gradients(params)
        else:
            began += _set_gradients(params)
        opt.step()
        fastest = min(fastest, time.perf_counter() - began)
    tensors = [value for state in opt.state.values() for value in state.values() if isinstance(value, Tensor)]
    return fastest, float(sum(value.nbytes for value in tensors))


def _set_gradients(params: list[Tensor]) -> float:
    """Give every parameter a gradient; returns the seconds it took."""
    began = time.perf_counter()
    for param in params:
        param.grad = torch.ones_like(param)
    return time.perf_counter() - began


PART = Part(
    name="tensors",
    promise="10,000 parameter tensors: a step with its block takes at most 12 times AdamW's (foreach, native)",
    unit="optimizers and engines",
    short=len(_CASES),
    full=len(_CASES),
    cases=cases,
)
