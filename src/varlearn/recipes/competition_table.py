"""Table 14: how close to Hamiltonian Monte Carlo, with what the data pack has of the competition of 2021.

At hand are the predictives of the development phase for CIFAR-10 and IMDB, and regressions of posteriordb with draws.
Not at hand are DermaMNIST's images, and the references of the final phase for CIFAR-10 and for UCI's energy set.
"""

from __future__ import annotations

from typing import Any

from varlearn.methods import METHODS
from varlearn.recipes import paper_comparisons
from varlearn.recipes.hmc_reference import PRIOR_PRECISIONS, reference_run
from varlearn.recipes.paper import Published
from varlearn.recipes.regression_distance import regression_sheet
from varlearn.recipes.scales import Scale
from varlearn.recipes.tables import ACCURACY, Line, Metric, Table
from varlearn.recipes.text_classification import text
from varlearn.train.config import Run

MEMBERS = 6
# Method, members, and its row in the paper's table.
ENTRIES = (
    ("ivon", MEMBERS, "6*ivon"),
    ("ivon-2021", MEMBERS, "6*ivon-2021"),
    ("swag", MEMBERS, "multi-swag"),
    ("sae", 1, "sae"),
    ("sgd", MEMBERS, ""),
    ("ivon", 1, ""),
    ("sgd", 1, ""),
)
NOTE = (
    "Reference: the published predictives of Hamiltonian Monte Carlo for CIFAR-10 (ResNet-20 with filter response "
    "normalization and Swish) and IMDB (CNN-LSTM; here a GRU). The paper's figures are of the final phase, with other "
    "networks, so they are context. Not at hand: DermaMNIST's images, and the references of the final phase for "
    "CIFAR-10 and UCI. delta is the prior's precision over n: the reference's prior has two readings, both are lines."
)
COLUMNS = (
    Metric("agreement", "agreement %", 100.0, 1),
    Metric("total_variation", "TVD", 1.0, 3),
    ACCURACY,
    Metric("nll", "NLL"),
)


def competition(scale: Scale) -> Table:
    """Agreement and total variation distance with Hamiltonian Monte Carlo."""
    lines = []
    for reading, precision in PRIOR_PRECISIONS.items():
        for method, members, row in ENTRIES:
            if method in METHODS:
                run = reference_run(method, scale, precision=precision)
                changes = {"optim": {"weight_decay": run.optim.weight_decay}}
                lines.append(_line("cifar10", run, members, changes, reading, _published(row)))
    for method, members, _ in ENTRIES:
        if method in ("ivon", "sgd"):
            lines.append(_line("imdb", text("imdb", method, scale), members, {}, "", {}))
    return Table(
        "competition", "Table 14: agreement with Hamiltonian Monte Carlo", COLUMNS, tuple(lines), NOTE, regression_sheet
    )


def _line(
    data: str, run: Run, members: int, changes: dict[str, Any], detail: str, published: dict[str, Published]
) -> Line:
    name = f"{members}*{run.optim.name}" if members > 1 else run.optim.name
    return Line(data, run.model.name, name, detail, run, changes, ("averaged",), published, members=members)


def _published(row: str) -> dict[str, Published]:
    """The part of CIFAR-10."""
    found = paper_comparisons.competition().get((row,))
    if found is None:
        return {}
    return {"agreement": found["cifar_agreement"], "total_variation": found["cifar_tvd"]}
