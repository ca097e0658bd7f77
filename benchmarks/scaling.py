"""Cost per parameter as models grow: flat, if nothing but the memory traffic counts."""

from __future__ import annotations

import statistics
from functools import partial

from benchmarks.contenders import REFERENCE, Contender, select
from benchmarks.environment import available_memory
from benchmarks.part import Part
from benchmarks.results import Figure
from benchmarks.step import nothing
from benchmarks.tables import Column
from benchmarks.timing import QUICK, Budget, Timings, take_turns
from benchmarks.workloads import BY_SIZE, BY_SIZE_SMALL, Tensors

# Each stands in a turn-taking of its own with the reference: all at once would not fit at the largest size.
NAMES = ("ivon-opt", "varlearn loop", "varlearn foreach", "varlearn fused")
_LARGEST = {"ivon-opt": 110_000_000}  # beyond, a step takes a minute and a dozen parameter-vectors
_SHARE_OF_MEMORY = 0.8
_TURN = 8_000_000  # parameters that are updated in one turn, in several calls where there are fewer


def measure(quick: bool) -> list[Figure]:
    """Every size; a contender is left out where it would not fit into memory."""
    if quick:
        return _with_growth([figure for work in BY_SIZE_SMALL for figure in _size(work, QUICK)])
    figures = []
    for work in BY_SIZE:
        repeat = max(1, _TURN // work.count)
        figures += _size(work, Budget(rounds=60, seconds=5.0, least=3, repeat=repeat, warmup=1))
    return _with_growth(figures)


def _size(work: Tensors, budget: Budget) -> list[Figure]:
    contenders = {contender.name: contender for contender in select(REFERENCE, *NAMES)}
    reference = contenders.pop(REFERENCE)
    pairs = {
        name: _pair(work, reference, contender, budget)
        for name, contender in contenders.items()
        if work.count <= _LARGEST.get(name, work.count) and _fits(work, reference, contender)
    }
    if not pairs:
        return []
    reference_ms = [seconds * 1e3 for timings in pairs.values() for seconds in timings.seconds[REFERENCE]]
    medians = {REFERENCE: statistics.median(reference_ms)}
    medians |= {name: timings.median_ms(name) for name, timings in pairs.items()}
    return [
        {
            "case": work.name,
            "contender": name,
            "parameters": work.count,
            "rounds": len(reference_ms) if name == REFERENCE else pairs[name].rounds,
            "ns_per_parameter": 1e6 * ms / work.count,
            "over_fused": 1.0 if name == REFERENCE else pairs[name].ratio(name, REFERENCE),
        }
        for name, ms in medians.items()
    ]


def _pair(work: Tensors, reference: Contender, contender: Contender, budget: Budget) -> Timings:
    grads = work.grads()
    turns = {each.name: partial(each.drive, each.build(work.params(grads)), nothing) for each in (reference, contender)}
    return take_turns(turns, budget)


def _fits(work: Tensors, *contenders: Contender) -> bool:
    needed = 4 * work.count * (1.0 + sum(contender.vectors for contender in contenders))
    if needed <= _SHARE_OF_MEMORY * available_memory():
        return True
    print(f"left out: {contenders[-1].name} at {work.name}, which needs {needed / (1 << 30):.0f} GiB")
    return False


def _with_growth(figures: list[Figure]) -> list[Figure]:
    """Add each contender's cost per parameter relative to the smallest size."""
    first: dict[str, float] = {}
    for figure in figures:
        cost = float(figure["ns_per_parameter"])
        figure["growth"] = cost / first.setdefault(str(figure["contender"]), cost)
    return figures


PART = Part(
    name="scaling",
    title="sample + step against the number of parameters",
    columns=(
        Column("contender", "optimizer"),
        Column("ns_per_parameter", "ns per parameter", is_main=True),
        Column("growth", "x the smallest size"),
        Column("over_fused", "x AdamW fused"),
        Column("rounds", "rounds", "d"),
    ),
    measure=measure,
)
