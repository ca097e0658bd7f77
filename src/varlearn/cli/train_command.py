"""`varlearn train`."""

from __future__ import annotations

import json
import os
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from varlearn import train as training
from varlearn.cli.known_names import RecipeName, check_names
from varlearn.cli.overrides import given, laid_over, optional, read_settings
from varlearn.cli.run_checks import check_device
from varlearn.cli.show import say, show_findings, table
from varlearn.cli.show import settings as show_settings
from varlearn.files.metrics_file import read_metrics
from varlearn.methods import named
from varlearn.recipes import recipe as named_recipe
from varlearn.train.config import Run, to_json
from varlearn.train.joined_names import flattened

if TYPE_CHECKING:
    from varlearn.train import RunFolder

    Settings = Run
else:
    Settings = optional(Run)


def train(
    recipe: RecipeName | None = None,
    /,
    *,
    out: Path | None = None,
    scale: Literal["small", "paper"] | None = None,
    seed: int | None = None,
    resume: Annotated[bool, Parameter(negative="")] = False,
    config: Path | None = None,
    logger: Literal["tensorboard", "trackio", "wandb"] | None = None,
    device: str | None = None,
    quiet: Annotated[bool, Parameter(negative="")] = False,
    settings: Annotated[Settings | None, Parameter(name="*", show_default=False)] = None,
) -> int:
    """Train a recipe, predict the test set at the mean and averaged over the posterior, and score both.

    Args:
        recipe: its name, see varlearn list; or a file of settings, TOML or JSON. Not needed with --config or --resume.
        out: folder of the run; runs/RECIPE-SCALE-seedSEED unless given.
        scale: "small" for two cores and minutes (the default), "paper" for the paper's own setting.
        seed: of initialization, order of the data, augmentation and noise; 0 unless given.
        resume: go on with the run in the folder, or begin it if there is none.
        config: TOML file with settings, e.g. lr = 0.1 below [optim]; or the config.json of another run.
        logger: also log to this package.
        device: where to compute, e.g. cuda:1; a GPU if there is one unless given.
        quiet: no progress.
        settings: see below.
    """
    run = chosen(recipe, out if resume else None, scale, seed, config, given(settings) if settings is not None else {})
    folder = training.RunFolder(out if out is not None else Path("runs") / f"{run.recipe}-{run.scale}-seed{run.seed}")
    check_names(run)
    folder.check(run, resume=resume)
    check_device(device)
    first = int(os.environ.get("RANK", "0")) == 0  # of the processes that torchrun starts, one talks
    log = training.open_logger(logger, folder.out, json.loads(to_json(run))) if logger and first else None
    if first:
        show_settings(asdict(run))
        say(f"writing to {folder.out}")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The learning rate is", UserWarning)  # the advice at the end says it
        training.fit(run, folder.out, resume=resume, progress=False if quiet else None, logger=log, device=device)
    if first:
        training.predict_run(folder.out, device=device, progress=False if quiet else None)
        training.score_run(folder.out)
        show_metrics(folder)
        show_findings(training.advise_run(folder.out))
        say(f"see also: varlearn report {folder.out}")
    return 0


def chosen(
    recipe: str | None,
    resumed: Path | None,
    scale: Literal["small", "paper"] | None,
    seed: int | None,
    config: Path | None,
    flags: dict[str, Any],
) -> Run:
    """The run that the arguments stand for: a recipe or a folder's run, then the file, then the flags."""
    if recipe is not None and Path(recipe).suffix in (".toml", ".json"):
        base = laid_over(Run(), read_settings(Path(recipe)))
    elif recipe is not None:
        base = named_recipe(recipe, scale or "small", 0)
    elif resumed is not None and training.RunFolder(resumed).config.exists():
        base = training.RunFolder(resumed).read_run()
    elif config is not None:
        base = Run()
    elif resumed is not None:
        raise ValueError(
            f"--resume --out {resumed}: that folder holds no run to go on with; name the right one, or give a "
            "RECIPE to start a run in it"
        )
    else:
        raise ValueError(
            "no RECIPE given; varlearn list shows them, e.g. varlearn train digits-ivon. A file works, too; "
            "to go on with a run: varlearn train --resume --out FOLDER"
        )
    if config is not None:
        base = laid_over(base, read_settings(config))
    apart = {name: value for name, value in (("scale", scale), ("seed", seed)) if value is not None}
    return laid_over(base, {**flags, **apart})


def show_metrics(folder: RunFolder) -> None:
    """Print the metrics of a run: a row for each, a column for each kind of prediction."""
    metrics = read_metrics(folder.metrics)
    method = named(folder.read_run().optim.name)
    kinds = {"mean": "at the mean", "averaged": "averaged"} if method.averages else {"mean": method.name}
    for split, found in (("test", metrics), ("validation", metrics.get("validation"))):
        if found is not None:
            values = {kind: flattened(found[kind]) for kind in kinds}
            rows = [[name, *(_cell(values[kind][name]) for kind in kinds)] for name in values["mean"]]
            title = f"{split} data of {folder.out}" if "validation" in metrics else str(folder.out)
            table(["metric", *kinds.values()], rows, title=title, numbers=len(kinds))
    if method.averages and metrics.get("temperature") is not None:
        say(f"temperature of the posterior, fitted to the validation data: {metrics['temperature']:.4g}")


def _cell(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else "–" if value is None else str(value)
