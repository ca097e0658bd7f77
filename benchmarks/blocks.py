"""Several samples in one step: what each further block costs, beside one sampling pass and one step of AdamW."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import partial
from typing import Any

from torch import Tensor
from torch.nn import Parameter

from benchmarks.contenders import REFERENCE, Contender, select
from benchmarks.part import Part
from benchmarks.results import Figure
from benchmarks.step import nothing
from benchmarks.tables import Column
from benchmarks.timing import QUICK, Budget, Timings, take_turns
from benchmarks.workloads import GPT_37M, GPT_SMALL, RESNET20, Tensors, assign

_BLOCKS = 5
_NAMES = ("ivon-opt", "varlearn foreach", "varlearn fused", "varlearn fused, lean")


def measure(quick: bool) -> list[Figure]:
    """Steps of one block and of several, on few large tensors and on many small ones."""
    if quick:
        return _case(GPT_SMALL, QUICK)
    large = Budget(rounds=20, seconds=80.0, least=5)
    return _case(GPT_37M, large) + _case(RESNET20, Budget(rounds=100, seconds=30.0, least=10, repeat=3))


def several(optimizer: Any, params: Sequence[Parameter], grads: Sequence[Sequence[Tensor]], blocks: int) -> None:
    """One step of `blocks` samples. The first block's gradients receive the mean, so the later ones have their own."""
    for block in range(blocks):
        with optimizer.sampled_params(train=True):
            assign(params, grads[min(block, 1)])
    optimizer.step()


def sampling_pass(optimizer: Any) -> None:
    """A sample goes in and comes out again, without a gradient."""
    with optimizer.sampled_params(train=False):
        pass


def _case(work: Tensors, budget: Budget) -> list[Figure]:
    grads = (work.grads(), work.grads())
    reference = select(REFERENCE)[0]
    turns = {REFERENCE: partial(reference.drive, reference.build(work.params(grads[0])), nothing)}
    contenders = select(*_NAMES)
    for each in contenders:
        params = work.params(grads[0])
        optimizer = each.build(params)
        turns[f"{each.name}: one"] = partial(several, optimizer, params, grads, 1)
        turns[f"{each.name}: several"] = partial(several, optimizer, params, grads, _BLOCKS)
        turns[f"{each.name}: pass"] = partial(sampling_pass, optimizer)
    timings = take_turns(turns, budget)
    return [_figure(work, each, timings) for each in contenders]


def _figure(work: Tensors, contender: Contender, timings: Timings) -> Figure:
    one, several, sampling, reference = (
        timings.seconds[name]
        for name in (f"{contender.name}: one", f"{contender.name}: several", f"{contender.name}: pass", REFERENCE)
    )
    further = [(more - less) / (_BLOCKS - 1) for more, less in zip(several, one, strict=True)]
    return {
        "case": work.name,
        "contender": contender.name,
        "parameters": work.count,
        "rounds": timings.rounds,
        "one_ms": 1e3 * statistics.median(one),
        "pass_ms": 1e3 * statistics.median(sampling),
        "further_ms": 1e3 * statistics.median(further),
        "over_pass": statistics.median(own / other for own, other in zip(further, sampling, strict=True)),
        "over_fused": statistics.median(own / other for own, other in zip(further, reference, strict=True)),
    }


PART = Part(
    name="blocks",
    title="each further sampling block of a step",
    columns=(
        Column("contender", "optimizer"),
        Column("one_ms", "ms, step of one block", ".3g"),
        Column("pass_ms", "ms, sample in and out", ".3g"),
        Column("further_ms", "ms, further block", ".3g"),
        Column("over_pass", "x sample in and out"),
        Column("over_fused", "x AdamW fused", is_main=True),
        Column("rounds", "rounds", "d"),
    ),
    measure=measure,
)
