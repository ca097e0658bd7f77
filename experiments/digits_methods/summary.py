"""Print the table of README.md from results.jsonl.

python -m experiments.digits_methods.summary
"""

from __future__ import annotations

import json
from pathlib import Path

from experiments.table2.paired import by_method, cell, difference, markdown, value, verdict
from varlearn.methods import METHODS

RESULTS = Path(__file__).parent / "results.jsonl"
SCORES = {"nll": "NLL", "scaled_nll": "NLL, scaled", "ece": "ECE, 20 bins", "brier": "Brier"}
OUTSIDE = {"digits-noise": "AUROC noise", "digits-upside-down": "AUROC upside down"}


def main() -> None:
    """A row for each method, its difference to SGD, and to its own mean."""
    found = by_method([json.loads(line) for line in RESULTS.read_text().splitlines()])
    rows = []
    for method, of_method in found.items():
        runs = list(of_method.values())
        cells = [cell([value(row, "averaged.accuracy") for row in runs], 2, 100.0)]
        cells += [cell([value(row, f"averaged.{key}") for row in runs]) for key in SCORES]
        cells += [cell([value(row, f"averaged.ood.{name}.auroc") for row in runs]) for name in OUTSIDE]
        against = difference(of_method, found.get("sgd", {}), "averaged.nll")
        own = difference(of_method, of_method, "averaged.nll", "mean.nll")
        rows.append(
            [
                METHODS[method].label,
                str(len(runs)),
                f"{runs[0]['passes_per_step']:.0f} and {runs[0]['samples']}",
                *cells,
                "" if method == "sgd" else verdict(against),
                verdict(own) if METHODS[method].averages else "",
            ]
        )
    columns = ["method", "n", "passes per step, at test", "accuracy %", *SCORES.values(), *OUTSIDE.values()]
    print(markdown([*columns, "NLL less SGD's", "NLL less its own mean's"], rows))


if __name__ == "__main__":
    main()
