"""Standard normal numbers: what one costs, bare and as part of drawing a sample."""

from __future__ import annotations

from functools import partial

import torch

from benchmarks.part import Part
from benchmarks.results import Figure
from benchmarks.tables import Column
from benchmarks.timing import QUICK, Budget, take_turns
from varlearn.core.noise import derive_key, normal_
from varlearn.core.update import RULE
from varlearn.optim.engine import foreach
from varlearn.optim.engine.native import native_engine
from varlearn.optim.engine.plan import Member, Noise, Plan

_TORCH = "torch normal_"


def measure(quick: bool) -> list[Figure]:
    """In the cache and out of it."""
    if quick:
        return _case(1 << 12, QUICK)
    few = _case(1 << 20, Budget(rounds=50, seconds=10.0, least=10, repeat=3))
    return few + _case(37 * (1 << 20), Budget(rounds=20, seconds=25.0, least=5))


def _case(count: int, budget: Budget) -> list[Figure]:
    out, group = torch.zeros(count), {"foreach": None, "fused": None, "memory": "lean"}
    noise = Noise(derive_key(0, draw=0), ess=1.0, weight_decay=0.0)
    member = Member(out, {"step": 0, "momentum": torch.zeros(count), "hess": torch.ones(count)}, group, 0)

    def sample(plan: Plan) -> None:
        plan.draw({id(group): noise})

    turns = {
        _TORCH: out.normal_,
        "core.noise normal_": partial(normal_, out, noise.key),
        "sample, foreach engine": partial(sample, foreach.plan([member], RULE)),
    }
    if native_engine.available():
        turns["sample, native engine"] = partial(sample, native_engine.plan([member], RULE))
    timings = take_turns(turns, budget)
    return [
        {
            "case": f"{count:,} numbers",
            "contender": name,
            "rounds": timings.rounds,
            "ns_min": 1e6 * timings.least_ms(name) / count,
            "ns_median": 1e6 * timings.median_ms(name) / count,
            "over_torch": timings.ratio(name, _TORCH),
        }
        for name in turns
    ]


PART = Part(
    name="noise",
    title="one standard normal number",
    columns=(
        Column("contender", "what"),
        Column("ns_min", "ns, least"),
        Column("ns_median", "ns, median", is_main=True),
        Column("over_torch", "x torch normal_"),
        Column("rounds", "rounds", "d"),
    ),
    measure=measure,
)
