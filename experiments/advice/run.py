"""The runs that the thresholds of `varlearn.advice` were set on: `python -m experiments.advice.run`.

Writes `results.json`: the facts of every run, the expected findings and the ones that are given, and for each judged
quantity the range over runs that have its finding and over those that must not have it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments.advice.observing import Setup, as_json, observe, on
from experiments.advice.setups import HEALTHY, REGRESSION, SICK
from varlearn.advice import RunFacts, findings

DATA = ("breast_cancer", "wine")  # the tests judge runs on other data
SEEDS = (0, 1)
RESULTS = Path(__file__).with_name("results.json")

QUANTITIES: dict[str, Callable[[RunFacts], Any]] = {
    "diverged: last loss / first": lambda f: f.loss_last / f.loss_first,
    "diverged: NLL at the mean / log(classes)": lambda f: f.nll_mean / math.log(f.classes),
    "summed_loss: first loss / (batch size log(classes))": lambda f: f.loss_first / f.batch_size / math.log(f.classes),
    "hess_runaway: mean h / (h0 + delta)": lambda f: f.hess_mean / (f.hess_init + f.weight_decay),
    "hess_not_learned: |h - h0| / (h0 + delta)": lambda f: f.hess_moved,
    "no_schedule: last lr / peak": lambda f: f.lr / f.lr_peak,
    "ess_far_from_n: ess / n": lambda f: f.ess / f.n,
    "posterior_too_wide: NLL averaged - at the mean": lambda f: f.nll_averaged - f.nll_mean,
    "posterior_collapsed: disagreement * n": lambda f: f.disagreement * f.n,
    "too_few_samples: excess NLL": lambda f: (f.nll_one_sample - f.nll_averaged) / (f.samples - 1),
    "test_unlike_training: shift of the inputs": lambda f: f.input_shift,
}


def setups() -> list[tuple[str, Setup, set[str]]]:
    """Name, setup and expected codes of every run."""
    classed = [(name, setup, set[str]()) for name, setup in HEALTHY.items()]
    classed += [(name, setup, expected) for name, (setup, expected) in SICK.items()]
    all_of = [(f"{data}: {name}", on(data, setup), expected) for data in DATA for name, setup, expected in classed]
    return all_of + [(f"diabetes: {name}", on("diabetes", one), codes) for name, (one, codes) in REGRESSION.items()]


def main() -> None:
    """Run everything and write the results."""
    runs, seen = [], []
    for name, setup, expected in setups():
        for seed in SEEDS:
            facts = observe(Setup(**{**vars(setup), "seed": seed}))
            codes = sorted(finding.code for finding in findings(facts))
            seen.append((facts, expected))
            runs.append({"run": name, "seed": seed, "expected": sorted(expected), "found": codes} | as_json(facts))
            print(
                f"{name}, seed {seed}: {codes or 'nothing'}{'' if codes == sorted(expected) else '  (NOT AS EXPECTED)'}"
            )
    ranges = {name: _ranges(name.partition(":")[0], value, seen) for name, value in QUANTITIES.items()}
    RESULTS.write_text(json.dumps({"quantities": ranges, "runs": runs}, indent=1) + "\n")
    for name, row in ranges.items():
        print(f"{name}: without {row['without']}, with {row['with']}")


def _ranges(code: str, value: Callable[[RunFacts], Any], seen: list[tuple[RunFacts, set[str]]]) -> dict[str, Any]:
    """Smallest and largest value, over healthy runs and over those with the finding."""
    values: dict[str, list[float]] = {"without": [], "with": []}
    for facts, expected in seen:
        try:
            number = float(value(facts))
        except TypeError:  # a fact that the run does not have
            continue
        if math.isfinite(number) and (not expected or code in expected):
            values["with" if code in expected else "without"].append(number)
    return {name: [min(found), max(found)] if found else None for name, found in values.items()}


if __name__ == "__main__":
    main()
