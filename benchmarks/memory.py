"""Peak memory, in vectors of the size of all parameters, each contender in a fresh process.

`python -m benchmarks.memory CONTENDER CASE` is that process: it prints the peak as JSON.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from benchmarks.contenders import ALL, REFERENCE, select
from benchmarks.fresh import measured
from benchmarks.part import Part
from benchmarks.results import Figure
from benchmarks.step import nothing
from benchmarks.tables import Column
from benchmarks.workloads import GPT_3M, GPT_37M, GPT_SMALL, MANY, Tensors

_CASES = {work.name: work for work in (GPT_37M, MANY, GPT_3M)}
_NOTHING = "parameters and gradients"
_STEPS = 3


def measure(quick: bool) -> list[Figure]:
    """Every contender on few large tensors and on thousands of small ones; `quick` takes two, on a few megabytes."""
    if quick:
        return _case(GPT_3M, (REFERENCE, "varlearn foreach"))
    return _case(GPT_37M) + _case(MANY)


def _case(work: Tensors, only: Sequence[str] = ()) -> list[Figure]:
    names = [_NOTHING, *(contender.name for contender in select(*only))]
    vectors = {name: in_fresh_process(name, work.name) for name in names}
    return [
        {
            "case": work.name,
            "contender": name,
            "parameters": work.count,
            "vectors": vectors[name],
            "over_fused": vectors[name] - vectors[REFERENCE],
        }
        for name in names
    ]


def in_fresh_process(contender: str, case: str) -> float:
    """Peak of a contender in parameter-vectors, parameters and gradients included.

    The malloc settings that make eager training fast keep freed memory for reuse; they are left out here, so that the
    peak is what was in use at once.
    """
    return float(measured("memory", contender, case)["vectors"])


def peak_vectors(contender: str, case: str) -> float:
    """The same in this process, which must not have used much memory before."""
    work = _CASES[case]
    _steps(contender, GPT_SMALL)  # loads libraries, starts threads and compiles kernels on something small
    start = status_bytes("VmRSS")
    _steps(contender, work)
    return (status_bytes("VmHWM") - start) / (4 * work.count)


def _steps(name: str, work: Tensors) -> None:
    params = work.params(work.grads())
    contender = next((each for each in ALL if each.name == name), None)
    if contender is None:
        return
    optimizer = contender.build(params)
    for _ in range(_STEPS):
        contender.drive(optimizer, nothing)


def status_bytes(field: Literal["VmRSS", "VmHWM"]) -> int:
    """Memory that this process holds now (VmRSS), or the most it has held so far (VmHWM).

    `ru_maxrss` is the second best: it knows only the peak, which on Linux includes the parent's before the fork.
    """
    status = Path("/proc/self/status")
    if status.exists():
        return next(int(line.split()[1]) << 10 for line in status.read_text().splitlines() if line.startswith(field))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak << 10


def main(arguments: Sequence[str]) -> None:
    """Print the peak of one contender on one case."""
    contender, case = arguments
    print(json.dumps({"vectors": peak_vectors(contender, case)}))


PART = Part(
    name="memory",
    title="peak memory, parameters and gradients included",
    columns=(
        Column("contender", "optimizer"),
        Column("vectors", "parameter-vectors", is_main=True),
        Column("over_fused", "more than AdamW fused", "+.2f"),
    ),
    measure=measure,
)

if __name__ == "__main__":
    main(sys.argv[1:])
