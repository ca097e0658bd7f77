"""Print the tables of README.md, and gather ensembles from the runs where these are at hand.

python -m experiments.table2.summary [--runs runs/comparison]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.table2.paired import by_method, cell, difference, markdown, value, verdict
from varlearn.methods import METHODS
from varlearn.recipes.comparison_tables import PASSES
from varlearn.recipes.member_curves import averaged_sets, ensemble_equivalent, member_curve
from varlearn.train import RunFolder

HERE = Path(__file__).parent
RESULTS, ENSEMBLES = HERE / "results.jsonl", HERE / "ensembles.json"
SCORES = {"nll": "NLL", "scaled_nll": "NLL, scaled", "ece": "ECE, 20 bins", "brier": "Brier", "aurc": "AURC"}
OUTSIDE = ("svhn-pack", "flowers102-pack", "tinyimagenet-pack", "cifar100-pack")
ENSEMBLES_OF = ("sgd", "ivon", "swag", "mc-dropout")
MEMBERS, SEEDS = 5, 3

Rows = Sequence[Mapping[str, Any]]
Found = Mapping[str, Mapping[int, Mapping[str, Any]]]
Curves = Mapping[str, Any]


def gather(rows: Rows, folder: Path) -> None:
    """Curves over the number of members, for each method with two runs or more; written to ensembles.json."""
    curves: dict[str, Any] = {}
    for method in ENSEMBLES_OF:
        here = []
        for row in rows:
            place = folder / f"{row['network']}-{row['images']}-{row['epochs']}-{row['method']}-seed{row['seed']}"
            if row["method"] == method and RunFolder(place).predictions.exists():
                here.append(averaged_sets(place))
        if len(here) > 1:
            curves[method] = member_curve(here[:MEMBERS])
    ENSEMBLES.write_text(json.dumps(curves, indent=1) + "\n", encoding="utf-8")


def in_domain(found: Found, curves: Curves, epochs: int) -> str:
    """Scores of each method, averaged and at its mean."""
    deep = [row["scaled_nll"] for row in curves.get("sgd", ())]
    rows = []
    for method, of_method in found.items():
        runs = list(of_method.values())
        for kind in ("averaged", "mean") if METHODS[method].averages else ("averaged",):
            cells = [cell([value(row, f"{kind}.accuracy") for row in runs], 1, 100.0)]
            cells += [cell([value(row, f"{kind}.{key}") for row in runs]) for key in SCORES]
            worth = [ensemble_equivalent(value(row, f"{kind}.scaled_nll"), deep) for row in runs] if deep else []
            label = METHODS[method].label + (" at its mean" if kind == "mean" else "")
            passes = runs[0]["samples"] if kind == "averaged" else 1
            cost = epochs * PASSES.get(method, 1)
            rows.append([label, str(len(runs)), f"{cost} and {passes}", *cells, cell(worth, 1)])
    columns = ["method", "n", "SGD epochs, test passes", "accuracy %", *SCORES.values(), "deep-ensemble equivalent"]
    return markdown(columns, rows)


def ensembles(curves: Curves) -> str:
    """Scores against the number of members."""
    rows = []
    for method, curve in curves.items():
        for row in curve:
            inside = [f"{row[key]:.3f}" for key in ("accuracy", "nll", "scaled_nll", "ece")]
            away = [f"{row['auroc'][name]:.3f}" for name in OUTSIDE]
            rows.append([METHODS[method].label, str(row["members"]), str(row["subsets"]), *inside, *away])
    columns = ["members of", "number", "subsets", "accuracy", "NLL", "NLL, scaled", "ECE, 20 bins"]
    return markdown([*columns, *(f"AUROC {name}" for name in OUTSIDE)], rows)


def out_of_domain(found: Found) -> str:
    """Detection of other data sets."""
    rows = []
    for method, of_method in found.items():
        paths = [f"averaged.ood.flowers102-pack.{key}" for key in ("fpr95", "fpr95_paper")]
        paths += [f"averaged.ood.{name}.auroc" for name in OUTSIDE]
        cells = [cell([value(row, path) for row in of_method.values()]) for path in paths]
        rows.append([METHODS[method].label, *cells])
    columns = ["method", "FPR at 95% TPR, Flowers102", "the paper's FPR", *(f"AUROC {name}" for name in OUTSIDE)]
    return markdown(columns, rows)


def differences(found: Found) -> str:
    """Paired differences over seeds with 95% intervals."""
    sgd, rows = found.get("sgd", {}), []
    for method, runs in found.items():
        cells = [verdict(difference(runs, sgd, f"averaged.{key}")) for key in ("nll", "ece")]
        higher = ("averaged.accuracy", "averaged.ood.flowers102-pack.auroc")
        cells += [verdict(difference(runs, sgd, path), lower_is_better=False) for path in higher]
        cells.append(verdict(difference(runs, runs, "averaged.nll", "mean.nll")) if METHODS[method].averages else "")
        if method != "sgd":
            rows.append([METHODS[method].label, *cells])
    columns = ["method", "NLL less SGD's", "ECE", "accuracy", "AUROC Flowers102", "NLL less its own mean's"]
    return markdown(columns, rows)


def main() -> None:
    """Read, gather, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs/comparison"))
    options = parser.parse_args()
    rows = [json.loads(line) for line in RESULTS.read_text().splitlines()]
    if options.runs.exists():
        gather(rows, options.runs)
    curves = json.loads(ENSEMBLES.read_text()) if ENSEMBLES.exists() else {}
    found = by_method([row for row in rows if row["seed"] < SEEDS])
    first = rows[0]
    print(f"{first['network']}, {first['images']:,} images, {first['epochs']} epochs, {first['tested']:,} test images")
    print(in_domain(found, curves, first["epochs"]))
    print(ensembles(curves))
    print(out_of_domain(found))
    print(differences(found))


if __name__ == "__main__":
    main()
