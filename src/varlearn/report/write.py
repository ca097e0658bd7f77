"""From run folders, predictions or results to `report.html`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from varlearn.files.atomic import replacing, writing
from varlearn.report.class_figures import entropy_figure, reliability_figure, risk_figure
from varlearn.report.example_cards import compared_examples, extreme_examples
from varlearn.report.page import Section, figures, folded, page
from varlearn.report.posterior_figures import layer_figures, layer_table, samples_figure, temperature_figure
from varlearn.report.regression_figures import coverage_figure, interval_figure
from varlearn.report.run_results import RunResults, Source, results_of
from varlearn.report.run_tables import cost_table, settings_table
from varlearn.report.score_table import outside_table, score_tables
from varlearn.report.series import Group, all_series, best_of_each_method, grouped, in_order
from varlearn.report.training_figures import training_figures
from varlearn.report.verdict import verdict


def write_report(
    sources: Source | Sequence[Source] | Mapping[str, Source], out: str | Path, *, title: str | None = None
) -> Path:
    """Write `report.html`, one file without scripts that needs nothing but a browser.

    Runs that differ in their seed alone are shown as one method with mean and spread.

    Args:
        sources: what to report: the folder of a run, predictions, what `varlearn.fit` returned, or `RunResults`;
            several as a list, or as a mapping from the name of the method.
        out: folder to write to.
        title: of the page; None for one made of the model, the data and the methods.

    Returns:
        The path of the page.

    >>> import tempfile, torch
    >>> from varlearn.prediction import Predictions
    >>> p = Predictions(torch.tensor([[0.9, 0.1]]).log(), torch.tensor([0]), torch.zeros(1), torch.ones(1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = write_report({"mine": p}, folder).read_text()
    >>> "mine has an NLL of 0.105 on 1 test examples at 100.0% accuracy." in page
    True
    """
    if isinstance(sources, Mapping):
        runs = [results_of(source, name) for name, source in sources.items()]
    elif isinstance(sources, Sequence) and not isinstance(sources, str):
        runs = [results_of(source) for source in sources]
    else:
        runs = [results_of(sources)]
    if not runs:
        raise ValueError("no results to report; give the folder of at least one run")
    path = Path(out) / "report.html"
    text = report_page(runs, title)
    write(path, lambda target: target.write_text(text, encoding="utf-8"))
    return path


def report_page(runs: Sequence[RunResults], title: str | None = None) -> str:
    """The page as HTML."""
    runs = _named_apart(runs)
    groups = in_order(grouped(runs))
    series = all_series(groups)
    compared = len({run.config.get("data", {}).get("name") for run in runs if run.config}) <= 1
    sections = [
        Section("Scores", score_tables(series, compared=compared)),
        Section("What each method says", compared_examples(best_of_each_method(series))),
        Section(
            "Calibration",
            figures(
                [reliability_figure(series), risk_figure(series), coverage_figure(series), interval_figure(series)]
            ),
        ),
        Section("Out of the domain", outside_table(series, compared=compared) + figures([entropy_figure(series)])),
        Section(
            "Posterior",
            figures([samples_figure(groups), temperature_figure(groups), *layer_figures(groups)]) + layer_table(groups),
        ),
        Section("Training", figures(training_figures(groups))),
        Section("Examples", extreme_examples(series)),
        Section("Time and memory", cost_table(groups)),
        Section("Settings", settings_table(groups) + folded({run.name: run.config for run in runs if run.config})),
        Section("Environment", folded({run.name: run.env for run in runs if run.env})),
    ]
    footer = "Made by varlearn. This file needs no network and no scripts."
    return page(
        title or _title(groups), _note(runs, groups), verdict(groups, series, compared=compared), sections, footer
    )


def write(path: Path, fill: Callable[[Path], object]) -> None:
    """Let `fill` write a temporary file beside `path` and rename it: a reader never sees half a file.

    Raises:
        WriteError: naming the file, if the disk is full or the folder read-only.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write(Path(folder, "page.html"), lambda path: path.write_text("whole"))
    ...     os.listdir(folder)
    ['page.html']
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            fill(temporary)


def _named_apart(runs: Sequence[RunResults]) -> list[RunResults]:
    """The runs, numbered where two have the same name."""
    seen: dict[str, int] = {}
    named = []
    for run in runs:
        seen[run.name] = seen.get(run.name, 0) + 1
        named.append(run if seen[run.name] == 1 else replace(run, name=f"{run.name} ({seen[run.name]})"))
    return named


def _title(groups: Sequence[Group]) -> str:
    labels = list(dict.fromkeys(run.label for group in groups for run in group.runs))
    methods = ", ".join(labels[:4]) + (f" and {len(labels) - 4} more" if len(labels) > 4 else "")
    places = dict.fromkeys(
        f"{run.config['model'].get('name')} on {_data_name(run)}"
        for group in groups
        for run in group.runs
        if "model" in run.config and "data" in run.config
    )
    return f"{methods}: {', '.join(places)}" if 0 < len(places) <= 2 else methods


def _data_name(run: RunResults) -> str:
    name = run.config["data"].get("name")
    return "your data" if name == "own" else str(name)


def _note(runs: Sequence[RunResults], groups: Sequence[Group]) -> str:
    if len(runs) == 1:
        seed = runs[0].config.get("seed")
        words = [f"run {runs[0].name}" + (f", seed {seed}" if seed is not None else "")]
    else:
        seeds = sorted({len(group.runs) for group in groups})
        each = f", {seeds[0]} seeds each" if len(seeds) == 1 and seeds[0] > 1 else ""
        words = [f"{len(runs)} runs: {len(groups)} settings{each}" if len(groups) > 1 else f"{len(runs)} seeds"]
    for run in runs:
        if run.damaged_lines:
            numbers = ", ".join(map(str, run.damaged_lines[:5])) + (", ..." if len(run.damaged_lines) > 5 else "")
            words.append(
                f"log.jsonl of {run.name}: {len(run.damaged_lines)} line(s) damaged or out of place and left out "
                f"({numbers})"
            )
    return "; ".join(words)
