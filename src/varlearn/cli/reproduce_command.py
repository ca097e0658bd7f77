"""`varlearn reproduce`."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from varlearn.cli.figure_command import figure_commands, figure_filter, reproduce_figure
from varlearn.cli.overrides import as_flags
from varlearn.cli.show import say, table
from varlearn.methods.ensemble_label import line_label
from varlearn.recipes.jobs import Job, chosen, collect, jobs, run_all
from varlearn.recipes.loo_figures import FIGURES
from varlearn.recipes.paper_artefacts import PARTS, command_of, suggestions
from varlearn.recipes.studies import STUDIES, study
from varlearn.recipes.study import Study
from varlearn.recipes.study_results import measure_runs
from varlearn.recipes.study_sheet import Sheet
from varlearn.recipes.tables import TABLES, Table
from varlearn.recipes.tables import table as table_of

SEEDS = {"small": 3, "paper": 5}
SHARED_RUNS = {"table2": "comparison", "table3": "comparison"}  # the folder of runs that several artefacts read
GLUE_SIZES, MERGED = "table12", "table5"
KNOWN = (*TABLES, *STUDIES, *FIGURES, GLUE_SIZES, MERGED)
if TYPE_CHECKING:
    ArtefactName = str
else:  # completed in shells; the paper's own numbers are taken too, and other words are refused with a suggestion
    ArtefactName = Annotated[Literal[KNOWN] | str, Parameter(show_choices=False)]
Several = Annotated[tuple[str, ...], Parameter(consume_multiple=True)]


def reproduce(
    artefact: ArtefactName,
    /,
    *,
    scale: Literal["small", "paper"] = "small",
    seeds: int | None = None,
    models: Several = (),
    data: Several = (),
    methods: Several = (),
    out: Path | None = None,
    jobs_file: Annotated[Path | None, Parameter(name="--jobs", allow_leading_hyphen=True)] = None,
    collect_only: Annotated[bool, Parameter(name="--collect", negative="")] = False,
    device: str | None = None,
    quiet: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Make the runs behind a table or figure of the paper, and print what comes out beside the paper's figures.

    Args:
        artefact: a table or figure of the paper, e.g. table2 or figure7, or its name, e.g. shift; varlearn list paper
            shows them all.
        scale: "small" for two cores, "paper" for the paper's own setting.
        seeds: runs of each method; 3 at the small scale, the paper's 5 at its own, unless given.
        models: only these networks.
        data: only these data sets.
        methods: only these, e.g. sgd ivon.
        out: folder of the runs; runs/ARTEFACT-SCALE unless given, runs/comparison-SCALE for those that share runs.
        jobs_file: run nothing; write the commands of unfinished runs to this file, one a line; - for the screen.
        collect_only: run nothing; gather what is finished.
        device: where to compute; a GPU if there is one unless given.
        quiet: no progress.
    """
    name = command_of(artefact)
    count = SEEDS[scale] if seeds is None else seeds
    if name in FIGURES:
        passes = figure_filter(name, scale, models, data, methods)
        if jobs_file is not None:
            write_lines(figure_commands(name, scale, count, out, passes), jobs_file)
            if not collect_only:
                return 0
        return reproduce_figure(name, scale, count, out, passes, collect_only, device, quiet)
    if name == GLUE_SIZES:
        from varlearn.recipes.glue_sizes import glue_sizes

        show_sheet(glue_sizes())
        return 0
    if name == MERGED:
        from varlearn.cli.merging_table_command import reproduce_merging

        folder = out or Path("runs") / f"{name}-{scale}"
        commands = reproduce_merging(
            scale, count, folder, filters={"models": models, "data": data, "methods": methods},
            command=command if jobs_file is not None else None, collect=collect_only, device=device, quiet=quiet,
        )  # fmt: skip
        if jobs_file is not None:
            write_lines(commands, jobs_file)
        return 0
    if name not in TABLES and name not in STUDIES:
        raise ValueError(f"{artefact!r} cannot be reproduced; {suggestions(artefact, list(KNOWN))}")
    found = study(name, scale) if name in STUDIES else None
    whole = table_of(name, scale) if found is None else found.table
    wanted = chosen(whole, models, data or PARTS.get(artefact, ()), methods)
    shared = found.runs if found is not None else SHARED_RUNS.get(name, name)
    folder = out or Path("runs") / f"{shared}-{scale}"
    todo = jobs(wanted, count, folder)
    if found is not None:
        say(found.needs)
    if jobs_file is not None:
        write_jobs([job for job in todo if not job.finished], jobs_file)
        if not collect_only:
            return 0
    failed: list[tuple[Job, str]] = []
    if not collect_only:
        failed = list(run_all(todo, progress=False if quiet else None, device=device, say=say))
    if found is None:
        show(wanted, collect(wanted, count, folder))
        if wanted.beside is not None:
            show_sheet(wanted.beside())
        say(f"wrote {folder / 'results.json'}")
    else:
        show_study(replace(found, table=wanted), count, folder)
    for job, words in failed:
        say(f"failed: {job.out.name}: {words}")
    return 1 if failed else 0


def show_study(wanted: Study, seeds: int, folder: Path) -> None:
    """Measure the finished runs of a study, print the sheet, and draw the figures."""
    measured = measure_runs(wanted, seeds, folder, say)
    if not measured:
        say("no run is finished, so there is nothing to measure")
        return
    show_sheet(wanted.sheet(measured))
    say(f"wrote {folder / f'{wanted.name}.json'}")
    if wanted.draw is not None and find_spec("matplotlib") is not None:
        for path in wanted.draw(measured, folder):
            say(f"wrote {path}")


def show_sheet(sheet: Sheet) -> None:
    """Print a table of words."""
    table(sheet.columns, sheet.rows, title=sheet.title, numbers=sheet.numbers)


def write_jobs(todo: list[Job], path: Path) -> None:
    """Write a command for each run, to be run in any order and anywhere that shares the folder."""
    write_lines([command(job) for job in todo], path)


def write_lines(lines: list[str], path: Path) -> None:
    """Write commands to a file, or to the screen."""
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
    """Print a line of ours and, where the paper has it, a line of the paper's for each method."""
    if wanted.note:
        say(wanted.note)
    rows: list[list[str]] = []
    before = ""
    for line in results["lines"]:
        where = " ".join(word for word in (line["data"], line["model"], line["detail"]) if word)
        ours = [_cell(line["metrics"].get(metric.key), metric.digits) for metric in wanted.metrics]
        rows.append([where if where != before else "", line_label(line["method"]), f"ours, n = {line['seeds']}", *ours])
        if line["paper"]:
            theirs = [_cell(line["paper"].get(metric.key), metric.digits) for metric in wanted.metrics]
            rows.append(["", "", "paper", *theirs])
        before = where
    title = wanted.title + (" (small scale: less data, fewer steps)" if results["scale"] == "small" else "")
    table(["", "method", "", *(m.title for m in wanted.metrics)], rows, title=title, numbers=len(wanted.metrics))
    if curves := results.get("curves"):
        show_curves(curves)


def show_curves(curves: dict[str, list[dict[str, Any]]]) -> None:
    """Print the scores of ensembles against their number of members, in and out of domain."""
    outside = list(next(iter(curves.values()))[0]["auroc"])
    keys = ("accuracy", "nll", "scaled_nll", "ece", "brier")
    rows = []
    for method, curve in curves.items():
        for row in curve:
            inside = [f"{row[key]:.4f}" for key in keys]
            away = [f"{row['auroc'][name]:.4f}" for name in outside]
            rows.append([line_label(method), f"{row['members']}", f"{row['subsets']}", *inside, *away])
    columns = ["members of", "number", "subsets", "accuracy", "NLL", "NLL, scaled", "ECE, 20 bins", "Brier"]
    numbers = len(keys) + len(outside) + 2
    table([*columns, *(f"AUROC {name}" for name in outside)], rows, title="Ensembles", numbers=numbers)


def _cell(figure: dict[str, Any] | None, digits: int) -> str:
    if figure is None or figure["mean"] is None:
        return "–"
    if isinstance(figure["mean"], str):  # infinite: better than the largest ensemble that there is
        return "more"
    mean = f"{figure['mean']:.{digits}f}"
    return mean if figure["std"] is None else f"{mean} ± {figure['std']:.{digits}f}"
