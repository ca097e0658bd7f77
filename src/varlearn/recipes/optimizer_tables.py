"""Tables about optimizers: estimators of the Hessian (Table 7), and what each method costs (Table 6)."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from varlearn.methods import METHODS, named
from varlearn.recipes import paper_comparisons
from varlearn.recipes.catalogue import recipe
from varlearn.recipes.images import methods_of
from varlearn.recipes.scales import Scale
from varlearn.recipes.tables import ACCURACY, UNCERTAINTY, Line, Metric, Table
from varlearn.train.config import Run

SECONDS = Metric("seconds_per_epoch", "s per epoch", 1.0, 2)
IN_SGD_EPOCHS = Metric("sgd_epochs", "in SGD's epochs", 1.0, 2)
COST_KEYS = {"seconds_per_epoch", "sgd_epochs", "memory", "hours"}  # of `timing.jsonl`, not of `metrics.json`

# The estimators by the names of `optim.hess_approx`, and as the paper's table has them
_ESTIMATORS = {
    "squared_gradient": ("ivon", "gradsq"),
    "gauss_newton": ("vogn", "gaussnewton"),
    "reparam": ("ivon", "price"),
    "hutchinson": None,
}
_SHORT: dict[str, dict[str, Any]] = {"data": {"subset": 1_000}, "train": {"epochs": 3, "warmup": 20.0}}


def estimators(scale: Scale) -> Table:
    """Table 7: IVON with other estimates of the Hessian's diagonal; Hutchinson's is not in the paper."""
    published = paper_comparisons.estimators()
    base = recipe("cifar10-resnet20-ivon", scale)
    lines = []
    for estimator, row in _ESTIMATORS.items():
        changes = {"optim": {"hess_approx": estimator}}
        figures = published[("cifar10", "resnet20", *row)] if row else {}
        place = ("cifar10", "resnet20", "ivon", estimator.replace("_", " "))
        lines.append(Line(*place, _changed(base, changes), changes, ("averaged",), figures))
    metrics = (ACCURACY, *UNCERTAINTY, SECONDS, Metric("memory", "peak memory MB", 1e-6, 0))
    return Table("estimators", "Table 7: estimators of the Hessian", metrics, tuple(lines))


def cost(scale: Scale) -> Table:
    """Table 6: time and memory of every method, on ResNet-20; at the paper's scale also GPT-2 of 125M and 355M.

    Small runs have 1,000 images and three epochs. Memory is the peak of the process, in which earlier runs may have
    left some: to compare methods write the commands with `--jobs`, and run each by itself.
    """
    published = paper_comparisons.cost()
    lines = []
    for method in METHODS:
        has_recipe = method in methods_of("cifar10")
        base = recipe(f"cifar10-resnet20-{method if has_recipe else 'sgd'}", scale)
        changes: dict[str, dict[str, Any]] = {} if has_recipe else {"optim": _own_rate(method)}
        changes |= _SHORT if scale == "small" else {}
        figures = published.get(("resnet20", method), {})
        lines.append(Line("cifar10", "resnet20", method, "", _changed(base, changes), changes, _path(method), figures))
    if scale == "paper":
        lines += [
            Line("openwebtext", model, method, "", recipe(f"{model}-{method}", scale), {}, _path(method), figures)
            for (model, method), figures in published.items()
            if model.startswith("gpt2")
        ]
    metrics = (SECONDS, IN_SGD_EPOCHS, Metric("hours", "hours", 1.0, 2), Metric("memory", "peak memory GB", 1e-9, 2))
    return Table("cost", "Table 6: time and memory", metrics, tuple(lines))


def _path(method: str) -> tuple[str, ...]:
    return ("averaged" if named(method).averages else "mean",)


def _own_rate(method: str) -> dict[str, Any]:
    """The method's name and, where it has one, its default learning rate in place of SGD's."""
    lr = named(method).Settings(name=method).lr
    return {"name": method} if lr is None else {"name": method, "lr": lr}


def _changed(run: Run, changes: dict[str, dict[str, Any]]) -> Run:
    """The run with settings replaced, as the command line does it.

    Another method keeps the settings that both have with the same default.
    """
    for part, values in changes.items():
        if "name" in values:
            after = named(values["name"]).Settings
            defaults = {field.name: field.default for field in fields(after)}
            kept = {
                field.name: getattr(run.optim, field.name)
                for field in fields(run.optim)
                if field.name in defaults and field.default == defaults[field.name]
            }
            run = replace(run, optim=after(**(kept | values)))
        else:
            run = replace(run, **{part: replace(getattr(run, part), **values)})
    return run


def with_sgd_epochs(lines: list[dict[str, Any]]) -> None:
    """Fill in what an epoch of each line costs in epochs of SGD on the same network.

    Args:
        lines: of `jobs.collect`; those of a table without this column are left alone.
    """
    for line in lines:
        if "sgd_epochs" not in line["metrics"]:
            continue
        own = line["metrics"]["seconds_per_epoch"]["mean"]
        sgd = [
            other["metrics"]["seconds_per_epoch"]["mean"]
            for other in lines
            if (other["method"], other["model"]) == ("sgd", line["model"])
        ]
        if own is not None and sgd and sgd[0] is not None:
            line["metrics"]["sgd_epochs"] = {"mean": own / sgd[0], "std": None, "values": [own / sgd[0]]}
