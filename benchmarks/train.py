"""Whole training steps: forward, backward and optimizer, beside the same with AdamW."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.contenders import REFERENCE, Contender, select
from benchmarks.part import Part
from benchmarks.results import Figure
from benchmarks.tables import Column
from benchmarks.timing import QUICK, Budget, take_turns
from benchmarks.workloads import GPT_STEP, GPT_STEP_SMALL, RESNET_STEP, RESNET_STEP_SMALL, Task, loss

_NAMES = (
    "AdamW fused",
    "ivon-opt",
    "varlearn foreach",
    "varlearn fused",
    "varlearn fused, lean",
    "varlearn fused, modes",
)


def measure(quick: bool) -> list[Figure]:
    """A transformer and a convolutional network, eager and, where it is the stricter test, compiled."""
    if quick:
        return _case(GPT_STEP_SMALL, QUICK) + _case(RESNET_STEP_SMALL, QUICK)
    eager = _case(GPT_STEP, Budget(rounds=40, seconds=100.0, least=7)) + _case(
        RESNET_STEP, Budget(rounds=100, seconds=50.0, least=10)
    )
    return eager + _case(RESNET_STEP, Budget(rounds=200, seconds=45.0, least=10), compiled=True)


class Training:
    """One contender with a model of its own; a call is a training step."""

    def __init__(self, contender: Contender, task: Task, compiled: bool) -> None:
        torch.manual_seed(0)
        self._inputs, self._targets = task.batch()
        self._model = task.build()
        self._forward: Callable[[Tensor], Tensor] = torch.compile(self._model) if compiled else self._model
        self._optimizer = contender.build(list(self._model.parameters()))
        self._drive = contender.drive
        self._computing = 0.0
        self.outside: list[float] = []  # seconds of each step that were not forward and backward

    def __call__(self) -> None:
        start = time.perf_counter()
        self._drive(self._optimizer, self._compute)
        self.outside.append(time.perf_counter() - start - self._computing)

    def _compute(self) -> None:
        start = time.perf_counter()
        self._optimizer.zero_grad()
        loss(self._forward, self._inputs, self._targets).backward()
        self._computing = time.perf_counter() - start


def _case(task: Task, budget: Budget, compiled: bool = False) -> list[Figure]:
    contenders = select(*_NAMES)
    turns = {each.name: Training(each, task, compiled) for each in contenders}
    timings = take_turns(turns, budget)
    figures: list[Figure] = []
    for each in contenders:
        low, high = timings.quartiles(each.name, REFERENCE)
        figures.append(
            {
                "case": f"{task.name}, compiled" if compiled else task.name,
                "contender": each.name,
                "rounds": timings.rounds,
                "ms_min": timings.least_ms(each.name),
                "ms_median": timings.median_ms(each.name),
                "optimizer_ms": 1e3 * statistics.median(turns[each.name].outside[budget.warmup :]),
                "over_fused": timings.ratio(each.name, REFERENCE),
                "over_fused_low": low,
                "over_fused_high": high,
            }
        )
    return figures


PART = Part(
    name="train",
    title="whole training step",
    columns=(
        Column("contender", "optimizer"),
        Column("ms_min", "ms, least", ".4g"),
        Column("ms_median", "ms, median", ".4g"),
        Column("optimizer_ms", "of it optimizer", ".3g"),
        Column("over_fused", "x AdamW fused", ".3f", is_main=True),
        Column("over_fused_low", "lower quartile", ".3f"),
        Column("over_fused_high", "upper quartile", ".3f"),
        Column("rounds", "rounds", "d"),
    ),
    measure=measure,
)
