"""The optimizer alone: what one sample and one step cost, beside one step of AdamW."""

from __future__ import annotations

from functools import partial

from benchmarks.contenders import FOREACH_REFERENCE, REFERENCE, select
from benchmarks.part import Part
from benchmarks.results import Figure
from benchmarks.tables import Column
from benchmarks.timing import QUICK, Budget, take_turns
from benchmarks.workloads import GPT_37M, GPT_SMALL, RESNET20, Tensors


def nothing() -> None:
    """Forward and backward, which are not timed here: gradients are in place before."""


def measure(quick: bool) -> list[Figure]:
    """Every contender on few large tensors and on many small ones."""
    if quick:
        return _case(GPT_SMALL, QUICK) + _case(RESNET20, QUICK)
    large = Budget(rounds=40, seconds=75.0, least=7)
    small = Budget(rounds=200, seconds=40.0, least=20, repeat=10)
    return _case(GPT_37M, large) + _case(RESNET20, small)


def _case(work: Tensors, budget: Budget) -> list[Figure]:
    grads = work.grads()
    contenders = select()
    turns = {each.name: partial(each.drive, each.build(work.params(grads)), nothing) for each in contenders}
    timings = take_turns(turns, budget)
    figures: list[Figure] = []
    for each in contenders:
        low, high = timings.quartiles(each.name, REFERENCE)
        figures.append(
            {
                "case": work.name,
                "contender": each.name,
                "parameters": work.count,
                "rounds": timings.rounds,
                "ms_min": timings.least_ms(each.name),
                "ms_median": timings.median_ms(each.name),
                "ns_per_parameter": 1e6 * timings.median_ms(each.name) / work.count,
                "over_fused": timings.ratio(each.name, REFERENCE),
                "over_fused_low": low,
                "over_fused_high": high,
                "over_foreach": timings.ratio(each.name, FOREACH_REFERENCE),
            }
        )
    return figures


PART = Part(
    name="step",
    title="sample + step of the optimizer alone",
    columns=(
        Column("contender", "optimizer"),
        Column("ms_min", "ms, least", ".3g"),
        Column("ms_median", "ms, median", ".3g"),
        Column("ns_per_parameter", "ns per parameter"),
        Column("over_fused", "x AdamW fused", is_main=True),
        Column("over_fused_low", "lower quartile"),
        Column("over_fused_high", "upper quartile"),
        Column("over_foreach", "x AdamW foreach"),
        Column("rounds", "rounds", "d"),
    ),
    measure=measure,
)
