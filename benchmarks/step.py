"""The optimizer alone: what one sample and one step cost, beside one step of AdamW.

How fast memory is depends on where the system puts a process, and may change the ratios by a fifth. Each case is
therefore measured in several processes, one after the other: `python -m benchmarks.step CASE` is one of them. Large
tensors are measured with the allocator as it comes, and with one that keeps freed memory: AdamW's foreach path makes
temporaries of the size of the model, and takes half the time then.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from functools import partial

from benchmarks.contenders import FOREACH_REFERENCE, REFERENCE, select
from benchmarks.fresh import measured
from benchmarks.part import Part
from benchmarks.results import Figure
from benchmarks.tables import Column
from benchmarks.timing import QUICK, Budget, Timings, take_turns
from benchmarks.workloads import GPT_37M, GPT_SMALL, RESNET20, RESNET20_REAL, RealGradients, Tensors

KEEPING_CASE = f"{GPT_37M.name}, malloc keeps memory"
_PROCESSES = 7
_BUDGETS = {
    GPT_37M.name: (GPT_37M, Budget(rounds=7, seconds=20.0, least=3)),
    RESNET20.name: (RESNET20, Budget(rounds=30, seconds=8.0, least=5, repeat=10)),
    RESNET20_REAL.name: (RESNET20_REAL, Budget(rounds=30, seconds=8.0, least=5, repeat=10)),
}


def nothing() -> None:
    """Forward and backward, which are not timed here: gradients are in place before."""


def measure(quick: bool) -> list[Figure]:
    """Every contender on few large tensors and on many small ones."""
    if quick:
        small = (GPT_SMALL, RESNET20, RESNET20_REAL)
        return [figure for work in small for figure in _figures(work, _timings(work, QUICK), work.name)]
    figures: list[Figure] = []
    for work, keeps_memory in ((GPT_37M, False), (GPT_37M, True), (RESNET20, False), (RESNET20_REAL, False)):
        parts = [measured("step", work.name, keeps_memory=keeps_memory) for _ in range(_PROCESSES)]
        figures += _figures(work, Timings.pooled(parts), KEEPING_CASE if keeps_memory else work.name)
    return figures


def _timings(work: Tensors | RealGradients, budget: Budget) -> Timings:
    grads = work.grads()
    turns = {each.name: partial(each.drive, each.build(work.params(grads)), nothing) for each in select()}
    return take_turns(turns, budget)


def _figures(work: Tensors | RealGradients, timings: Timings, case: str) -> list[Figure]:
    figures: list[Figure] = []
    for each in select():
        low, high = timings.quartiles(each.name, REFERENCE)
        figures.append(
            {
                "case": case,
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


def main(arguments: Sequence[str]) -> None:
    """Print the seconds of all contenders on one case, round by round."""
    (case,) = arguments
    print(json.dumps(_timings(*_BUDGETS[case]).seconds))


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

if __name__ == "__main__":
    main(sys.argv[1:])
