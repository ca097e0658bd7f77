"""`varlearn reproduce`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from varlearn.cli.overrides import as_flags
from varlearn.cli.show import say, table
from varlearn.methods import named
from varlearn.recipes.jobs import Job, chosen, collect, jobs, run_all
from varlearn.recipes.tables import Table
from varlearn.recipes.tables import table as table_of

Several = Annotated[tuple[str, ...], Parameter(consume_multiple=True)]


def reproduce(
    artefact: Literal["table1", "table3", "table8", "table13", "figure1"],
    /,
    *,
    scale: Literal["small", "paper"] = "small",
    seeds: int = 3,
    models: Several = (),
    data: Several = (),
    methods: Several = (),
    out: Path | None = None,
    jobs_file: Annotated[Path | None, Parameter(name="--jobs", allow_leading_hyphen=True)] = None,
    collect_only: Annotated[bool, Parameter(name="--collect", negative="")] = False,
    device: str | None = None,
    quiet: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Make the runs behind a table of the paper, and print mean and standard deviation beside the paper's.

    Args:
        artefact: table1 (images; also Tables 9 to 11), table3 (OOD), table8 (h0), table13 (GRU), figure1 (GPT-2).
        scale: "small" for two cores, "paper" for the paper's own setting.
        seeds: runs of each method.
        models: only these networks.
        data: only these data sets.
        methods: only these of adamw, sgd, ivon.
        out: folder of the runs; runs/ARTEFACT-SCALE unless given.
        jobs_file: run nothing; write the commands of unfinished runs to this file, one a line; - for the screen.
        collect_only: run nothing; gather what is finished.
        device: where to compute; a GPU if there is one unless given.
        quiet: no progress.
    """
    wanted = chosen(table_of(artefact, scale), models, data, methods)
    folder = out or Path("runs") / f"{artefact}-{scale}"
    todo = jobs(wanted, seeds, folder)
    if jobs_file is not None:
        write_jobs([job for job in todo if not job.finished], jobs_file)
        if not collect_only:
            return 0
    failed: list[tuple[Job, str]] = []
    if not collect_only:
        failed = list(run_all(todo, progress=False if quiet else None, device=device, say=say))
    show(wanted, collect(wanted, seeds, folder))
    say(f"wrote {folder / 'results.json'}")
    for job, words in failed:
        say(f"failed: {job.out.name}: {words}")
    return 1 if failed else 0


def write_jobs(todo: list[Job], path: Path) -> None:
    """Write a command for each run, to be run in any order and anywhere that shares the folder."""
    lines = [command(job) for job in todo]
    text = "".join(f"{line}\n" for line in lines)
    if str(path) == "-":
        sys.stdout.write(text)
    else:
        path.write_text(text, encoding="utf-8")
        say(f"wrote {len(lines)} commands to {path}; afterwards gather the results with --collect")


def command(job: Job) -> str:
    """The command that makes or continues one run."""
    run = job.run
    words = ["varlearn", "train", run.recipe, "--scale", run.scale, "--seed", str(run.seed), *as_flags(job.changes)]
    return shlex.join([*words, "--out", str(job.out), "--resume"])


def show(wanted: Table, results: dict[str, Any]) -> None:
    """Print a line of ours and a line of the paper's for each method."""
    rows: list[list[str]] = []
    before = ""
    for line in results["lines"]:
        where = " ".join(word for word in (line["data"], line["model"], line["detail"]) if word)
        ours = [_cell(line["metrics"].get(metric.key), metric.digits) for metric in wanted.metrics]
        theirs = [_cell(line["paper"].get(metric.key), metric.digits) for metric in wanted.metrics]
        trained, at, place = line["method"].partition("@")
        label = f"{named(trained).label}{at}{place}"
        rows.append([where if where != before else "", label, f"ours, n = {line['seeds']}", *ours])
        rows.append(["", "", "paper", *theirs])
        before = where
    title = wanted.title + (" (small scale: less data, fewer steps)" if results["scale"] == "small" else "")
    table(["", "method", "", *(m.title for m in wanted.metrics)], rows, title=title, numbers=len(wanted.metrics))


def _cell(figure: dict[str, Any] | None, digits: int) -> str:
    if figure is None or figure["mean"] is None:
        return "–"
    mean = f"{figure['mean']:.{digits}f}"
    return mean if figure["std"] is None else f"{mean} ± {figure['std']:.{digits}f}"
