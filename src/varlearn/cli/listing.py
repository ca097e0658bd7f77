"""`varlearn list`."""

from __future__ import annotations

from typing import Literal

from varlearn.cli.show import table
from varlearn.recipes import names, recipe


def list_recipes(*, scale: Literal["small", "paper"] = "small") -> int:
    """Show the recipes.

    Args:
        scale: whose settings to show.
    """
    runs = [recipe(name, scale) for name in names()]
    rows = [
        [
            run.recipe,
            run.model.name,
            run.data.name + (f", first {run.data.subset:,}" if run.data.subset else ""),
            f"{run.train.steps:,} steps" if run.train.steps else f"{run.train.epochs} epochs",
            run.optim.name,
            f"{run.optim.lr:g}",
        ]
        for run in runs
    ]
    table(["recipe", "network", "data", "length", "optimizer", "lr"], rows, numbers=1)
    return 0
