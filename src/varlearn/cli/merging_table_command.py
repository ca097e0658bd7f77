"""`varlearn reproduce table5`: runs that start from another run, merged."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from varlearn.cli.show import say, table
from varlearn.recipes.jobs import Job
from varlearn.recipes.merging_table import base_folder, merged_table, merging_jobs
from varlearn.recipes.paper_comparisons import MERGED_TASKS
from varlearn.recipes.scales import Scale


def reproduce_merging(
    scale: Scale,
    seeds: int,
    out: Path,
    *,
    filters: Mapping[str, tuple[str, ...]],
    command: Callable[[Job], str] | None,
    collect: bool,
    device: str | None,
    quiet: bool,
) -> list[str]:
    """Make the runs that are missing, merge them, and print the accuracies beside the paper's.

    Args:
        scale: "small" or "paper".
        seeds: how many bases, each with its four networks.
        out: folder of the runs.
        filters: what was given for --models, --data and --methods; must be empty.
        command: writes the command of a run; given, nothing is made, and the commands are returned.
        collect: print what is finished.
        device: where to compute.
        quiet: no progress.
    """
    refuse_filters(filters)
    commands = [] if command is None else _commands(scale, seeds, out, command)
    if command is None or collect:
        _show(scale, seeds, out, train=command is None and not collect, device=device, quiet=quiet)
    return commands


def _show(scale: Scale, seeds: int, out: Path, *, train: bool, device: str | None, quiet: bool) -> None:
    progress = False if quiet else None
    results = merged_table(scale, seeds, out, train=train, progress=progress, device=device, say=say)
    columns = (*MERGED_TASKS, "average")
    rows: list[list[str]] = []
    for line in results["lines"]:
        ours = [_cell(line["metrics"].get(column)) for column in columns]
        rows.append([line["label"], f"ours, n = {results['seeds']}", *ours])
        if line["paper"]:
            rows.append(["", "paper", *(_cell(line["paper"].get(column)) for column in columns)])
    small = " (small scale: MiniLM, 100 steps, stand-ins for Yelp and Amazon)" if scale == "small" else ""
    title = f"Table 5: accuracy % of merged networks{small}"
    table(["curvature", "", *columns], rows, title=title, numbers=len(columns))
    say(f"wrote {out / 'results.json'}")


def _commands(scale: Scale, seeds: int, out: Path, command: Callable[[Job], str]) -> list[str]:
    """The commands of the runs that are not finished; a base is exported before the runs that start from it."""
    lines = []
    for job in merging_jobs(scale, seeds, out):
        words = [] if job.finished else [command(job)]
        folder = base_folder(out, scale, job.run.seed)
        if not job.changes and not folder.exists():
            words.append(shlex.join(["varlearn", "export", str(job.out), "--out", str(folder)]))
        if words:
            lines.append(" && ".join(words))
    return lines


def _cell(figure: dict[str, Any] | None) -> str:
    if figure is None or figure["mean"] is None:
        return "–"
    return f"{figure['mean']:.1f}" + ("" if figure["std"] is None else f" ± {figure['std']:.1f}")


def refuse_filters(filters: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse filters: the merged networks are made of all sets.

    >>> refuse_filters({"data": ("sst2",)})
    Traceback (most recent call last):
    ...
    ValueError: --data sst2: table5 merges the networks of all sets; leave the filter out
    """
    for flag, words in filters.items():
        if words:
            raise ValueError(
                f"--{flag} {' '.join(words)}: table5 merges the networks of all sets; leave the filter out"
            )
