"""Tables of the paper as lists of runs, each line beside what the paper says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from varlearn.methods import named
from varlearn.recipes import paper, paper_comparisons
from varlearn.recipes.catalogue import names, recipe
from varlearn.recipes.glue_finetuning import IVON_LRS, NETWORKS, TASKS
from varlearn.recipes.paper import Figures, Published
from varlearn.recipes.scales import Scale
from varlearn.recipes.study_sheet import Sheet
from varlearn.train.config import Run


@dataclass(frozen=True)
class Metric:
    """A column: where `metrics.json` has it, its title, the factor to the paper's unit, and digits after the point."""

    key: str
    title: str
    factor: float = 1.0
    digits: int = 4


ACCURACY = Metric("accuracy", "accuracy %", 100.0, 2)
TOP5 = Metric("top5_accuracy", "top-5 %", 100.0, 2)
UNCERTAINTY = (Metric("nll", "NLL"), Metric("ece", "ECE, 20 bins"), Metric("brier", "Brier"))


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
        reads: metric -> its name in `metrics.json`, where that is another.
        members: runs of the ensemble that the line is about; 1 for a single run.
    """

    data: str
    model: str
    method: str
    detail: str
    run: Run
    changes: dict[str, Any]
    path: tuple[str, ...]
    published: dict[str, Published]
    reads: dict[str, str] = field(default_factory=dict)
    members: int = 1


@dataclass(frozen=True)
class Table:
    """A table: its name on the command line, what it shows, its columns, its lines, a note, and a sheet beside it."""

    name: str
    title: str
    metrics: tuple[Metric, ...]
    lines: tuple[Line, ...]
    note: str = ""
    beside: Callable[[], Sheet] | None = None


def table(name: str, scale: Scale = "small") -> Table:
    """A table of the paper by its name.

    Args:
        name: one of `TABLES`.
        scale: "paper" or "small".

    >>> [line.method for line in table("table1").lines[:5]]
    ['adamw', 'adahessian', 'sgd', 'ivon@mean', 'ivon']
    """
    if name not in TABLES:
        raise ValueError(f"{name!r} is not a table that can be reproduced; choose one of {', '.join(TABLES)}")
    return TABLES[name](scale)


def table1(scale: Scale) -> Table:
    """Tables 1 and 9 to 11: image classification."""
    return Table(
        "table1",
        "Tables 1 and 9 to 11: image classification",
        (ACCURACY, TOP5, *UNCERTAINTY),
        tuple(_lines(paper.images(), scale)),
    )


def table2(scale: Scale) -> Table:
    """Table 2: Bayesian methods on CIFAR-10."""
    from varlearn.recipes.comparison_tables import in_domain  # which is made of this module's parts

    return in_domain(scale)


def table3(scale: Scale) -> Table:
    """Table 3: telling CIFAR-10 from other data sets, with the runs of Table 2."""
    from varlearn.recipes.comparison_tables import out_of_domain

    return out_of_domain(scale)


def competition(scale: Scale) -> Table:
    """Table 14: agreement with Hamiltonian Monte Carlo."""
    from varlearn.recipes.competition_table import competition

    return competition(scale)


def table4(scale: Scale) -> Table:
    """Table 4: finetuning on GLUE, after the last epoch and at the epoch that is best on the dev set.

    The column "score" is that of the task: Matthews' correlation for CoLA, Spearman's for STS-B, else accuracy. At the
    paper's scale there are lines for each learning rate. At the small scale MiniLM stands in for both networks.
    """
    metrics = (Metric("score", "score of the task %", 100.0, 1), Metric("f1", "F1 %", 100.0, 1), *UNCERTAINTY[:2])
    figures, lines = paper_comparisons.glue(), []
    for name, network in NETWORKS.items():
        if scale == "small" and name != "roberta":
            continue
        for task, facts in TASKS.items():
            for method, lrs in (("adamw", network.lrs), ("ivon", IVON_LRS)):
                run = recipe(f"{task}-{name}-{method}", scale)
                for lr in lrs if scale == "paper" else (run.optim.lr,):
                    changes = {} if lr == run.optim.lr else {"optim": {"lr": lr}}
                    tried = replace(run, optim=replace(run.optim, lr=lr))
                    for label, epoch, path in _epochs(method):
                        known = figures.get((network.label, label))
                        published = {"score": known[task]} if known else {}
                        detail = f"{'MiniLM, ' if scale == 'small' else ''}lr {lr:g}, {epoch} epoch"
                        reads = {"score": facts.metric}
                        lines.append(Line(task, network.label, label, detail, tried, changes, path, published, reads))
    return Table("table4", "Table 4: finetuning on GLUE, scored on the dev sets", metrics, tuple(lines))


def _epochs(method: str) -> list[tuple[str, str, tuple[str, ...]]]:
    """Label, epoch, and place in `metrics.json`."""
    label = f"{method}@mean" if method == "ivon" else method
    found = [(label, "last", ("mean",)), (label, "best", ("best_epoch",))]
    return [*found, (method, "last", ("averaged",))] if method == "ivon" else found


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


def estimators(scale: Scale) -> Table:
    """Table 7: estimators of the Hessian."""
    from varlearn.recipes import optimizer_tables  # which is made of this module's parts

    return optimizer_tables.estimators(scale)


def cost(scale: Scale) -> Table:
    """Table 6: time and memory."""
    from varlearn.recipes import optimizer_tables

    return optimizer_tables.cost(scale)


TABLES: dict[str, Callable[[Scale], Table]] = {
    "table1": table1,
    "table2": table2,
    "table3": table3,
    "table4": table4,
    "table8": table8,
    "table13": table13,
    "competition": competition,
    "figure1": figure1,
    "estimators": estimators,
    "cost": cost,
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
