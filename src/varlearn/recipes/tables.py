"""Tables of the paper as lists of runs, each line beside what the paper says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from varlearn.methods import named
from varlearn.recipes import paper
from varlearn.recipes.catalogue import names, recipe
from varlearn.recipes.paper import Figures, Published
from varlearn.recipes.scales import Scale
from varlearn.train.config import Run


@dataclass(frozen=True)
class Metric:
    """A column: where `metrics.json` has it, its title, the factor to the paper's unit, and digits after the point."""

    key: str
    title: str
    factor: float = 1.0
    digits: int = 4


ACCURACY = Metric("accuracy", "accuracy %", 100.0, 2)
UNCERTAINTY = (Metric("nll", "NLL"), Metric("ece", "ECE"), Metric("brier", "Brier"))


@dataclass(frozen=True)
class Line:
    """A line: its names, the run that it comes from, and the paper's figures.

    Attributes:
        data: data set.
        model: network.
        method: as the paper calls it; "ivon@mean" and "ivon" come from one run.
        detail: what else tells the line from its neighbours.
        run: with seed 0.
        changes: what the run changes in its recipe.
        path: keys that lead to the metrics in `metrics.json`.
        published: metric -> figure.
    """

    data: str
    model: str
    method: str
    detail: str
    run: Run
    changes: dict[str, Any]
    path: tuple[str, ...]
    published: dict[str, Published]


@dataclass(frozen=True)
class Table:
    """A table: its name on the command line, what it shows, its columns and its lines."""

    name: str
    title: str
    metrics: tuple[Metric, ...]
    lines: tuple[Line, ...]


def table(name: str, scale: Scale = "small") -> Table:
    """A table of the paper by its name.

    Args:
        name: one of `TABLES`.
        scale: "paper" or "small".

    >>> [line.method for line in table("table1").lines[:4]]
    ['adamw', 'sgd', 'ivon@mean', 'ivon']
    """
    if name not in TABLES:
        raise ValueError(f"{name!r} is not a table that can be reproduced; choose one of {', '.join(TABLES)}")
    return TABLES[name](scale)


def table1(scale: Scale) -> Table:
    """Tables 1 and 9 to 11: image classification."""
    return Table(
        "table1",
        "Tables 1 and 9 to 11: image classification",
        (ACCURACY, *UNCERTAINTY),
        tuple(_lines(paper.images(), scale)),
    )


def table3(scale: Scale) -> Table:
    """Table 3: telling CIFAR-10 from SVHN and Flowers102.

    Its column FPR@95% is left out: as published it is not the false positive rate at 95% (see `paper`).
    """
    metrics = tuple(
        Metric(key, title, 100.0, 1)
        for key, title in (
            ("detection_error", "detection error %"),
            ("auroc", "AUROC %"),
            ("aupr_in", "AUPR-in %"),
            ("aupr_out", "AUPR-out %"),
        )
    )
    lines = [
        replace(line, path=(*line.path, "ood", outside))
        for line in _lines(paper.ood(), scale)
        for outside in line.run.data.ood
        if outside.startswith(line.detail)
    ]
    return Table("table3", "Table 3: out-of-domain detection", metrics, tuple(lines))


def table8(scale: Scale) -> Table:
    """Table 8: IVON from different h0."""
    lines = []
    for line in _lines(paper.hess_init(), scale):
        hess_init = float(line.detail)
        run = replace(line.run, optim=replace(line.run.optim, hess_init=hess_init))
        changes = {"optim": {"hess_init": hess_init}}
        lines.append(replace(line, run=run, changes=changes, detail=f"h0 = {line.detail}"))
    return Table("table8", "Table 8: Hessian initialization", (ACCURACY, *UNCERTAINTY), tuple(lines))


def table13(scale: Scale) -> Table:
    """Table 13: recurrent networks on texts. Its AUROC is that of telling wrong predictions from right ones."""
    metrics = (ACCURACY, *UNCERTAINTY, Metric("auroc", "AUROC"))
    return Table("table13", "Table 13: recurrent networks", metrics, tuple(_lines(paper.gru(), scale)))


def figure1(scale: Scale) -> Table:
    """Figure 1: perplexity of GPT-2. At the small scale one network of 3M stands for all, on other data."""
    lines = _lines(paper.gpt2(), scale, recipe_of=lambda words: "-".join(words[1:]))
    if scale == "small":
        lines = [replace(line, detail="stand-in of 3M") for line in lines if line.model == "gpt2-125m"]
    return Table("figure1", "Figure 1: GPT-2 pretraining", (Metric("perplexity", "perplexity", 1.0, 2),), tuple(lines))


TABLES: dict[str, Callable[[Scale], Table]] = {
    "table1": table1,
    "table3": table3,
    "table8": table8,
    "table13": table13,
    "figure1": figure1,
}


def _lines(figures: Figures, scale: Scale, recipe_of: Callable[[list[str]], str] = "-".join) -> list[Line]:
    """A line for each of the paper's whose method has a recipe."""
    known, lines = set(names()), []
    for words, published in figures.items():
        data, model, method, *rest = words
        trained, _, at = method.partition("@")
        name = recipe_of([data, model, trained])
        if name in known:
            kind = "averaged" if named(trained).averages and at != "mean" else "mean"
            lines.append(Line(data, model, method, " ".join(rest), recipe(name, scale), {}, (kind,), published))
    return lines
