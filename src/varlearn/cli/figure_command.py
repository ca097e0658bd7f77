"""`varlearn reproduce` for the figures about leave-one-out: the runs, their curves, and the gallery."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from varlearn.cli.overrides import as_flags
from varlearn.cli.run_checks import check_device
from varlearn.cli.show import say, table
from varlearn.methods import named
from varlearn.recipes.jobs import Job, run_all
from varlearn.recipes.loo_figures import collect_curves, figure_jobs, galleries

TITLES = {
    "loo-imagenet": "Figure 5: leave-one-out against test loss, ImageNet",
    "loo-cifar10": "Figure 8: leave-one-out against test loss, CIFAR-10",
}


def reproduce_figure(
    figure: str,
    scale: Literal["small", "paper"],
    seeds: int,
    out: Path | None,
    passes: Callable[[Job], bool],
    collect_only: bool,
    device: str | None,
    quiet: bool,
) -> int:
    """Make the runs behind a figure, and its table, pictures or gallery; the arguments are those of `reproduce`."""
    if seeds < 1:
        raise ValueError(f"--seeds {seeds} must be at least 1")
    check_device(device)
    folder = out or Path("runs") / f"{figure}-{scale}"
    todo = [job for job in figure_jobs(figure, scale, seeds, folder) if passes(job)]
    progress = False if quiet else None
    failed: list[tuple[Job, str]] = []
    if not collect_only:
        failed = list(run_all(todo, progress=progress, device=device, say=say))
    if figure == "sensitivity-gallery":
        for job in (job for job in todo if job.finished):
            for page in galleries(job, device=device, progress=progress):
                say(f"wrote {page}")
    else:
        rows = collect_curves(figure, todo, folder)
        _show(figure, scale, rows)
        say(f"wrote {folder / 'results.json'}, and leave_one_out.png of each run")
    for job, words in failed:
        say(f"failed: {job.out.name}: {words}")
    return 1 if failed else 0


def figure_filter(
    figure: str, scale: Literal["small", "paper"], models: Sequence[str], data: Sequence[str], methods: Sequence[str]
) -> Callable[[Job], bool]:
    """Whether a run is asked for; an empty filter lets everything pass.

    >>> passes = figure_filter("loo-cifar10", "paper", ["resnet18"], [], ["ivon"])
    >>> [job.run.recipe for job in figure_jobs("loo-cifar10", "paper", 1, Path("runs")) if passes(job)]
    ['cifar10-resnet18-ivon']
    """
    jobs = figure_jobs(figure, scale, 1, Path("runs"))
    wanted = {"models": models, "data": data, "methods": methods}
    for what, chosen in wanted.items():
        known = {_name(job, what): None for job in jobs}
        for one in chosen:
            if one not in known:
                raise ValueError(f"--{what} {one} is not in {figure}; it has {', '.join(known)}")
    return lambda job: all(not chosen or _name(job, what) in chosen for what, chosen in wanted.items())


def _name(job: Job, what: str) -> str:
    return {"models": job.run.model.name, "data": job.run.data.name, "methods": job.run.optim.name}[what]


def figure_commands(
    figure: str, scale: Literal["small", "paper"], seeds: int, out: Path | None, passes: Callable[[Job], bool]
) -> list[str]:
    """The command of every unfinished run, to be run anywhere that shares the folder."""
    folder = out or Path("runs") / f"{figure}-{scale}"
    commands = []
    for job in filter(passes, figure_jobs(figure, scale, seeds, folder)):
        run = job.run
        words = ["varlearn", "train", run.recipe, "--scale", run.scale, "--seed", str(run.seed)]
        if not job.finished:
            commands.append(shlex.join([*words, *as_flags(job.changes), "--out", str(job.out), "--resume"]))
    return commands


def _show(figure: str, scale: str, rows: list[dict[str, Any]]) -> None:
    columns = ["network", "method", "seed", "accuracy %", "paper's", "test loss", "LOO loss", "mean gap", "correlation"]
    cells = [
        [
            row["model"],
            named(row["method"]).label,
            str(row["seed"]),
            f"{row['accuracy']:.2f}",
            *(_cell(row[name]) for name in ("paper_accuracy", "last_test", "last_loo", "gap", "correlation")),
        ]
        for row in rows
    ]
    title = TITLES[figure] + (" (small scale: stand-ins, fewer images and steps)" if scale == "small" else "")
    table(columns, cells, title=title, numbers=6)


def _cell(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"
