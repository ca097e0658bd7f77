"""`varlearn predict`, `score` and `report`: the later stages of a run, each from its neighbour's file."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from varlearn import train as training
from varlearn.cli.run_checks import check_device
from varlearn.cli.show import say, show_findings, table
from varlearn.cli.train_command import show_metrics
from varlearn.files.atomic import write_text


def predict(
    run: Path,
    /,
    *,
    inputs: Annotated[Path | None, Parameter(name="--input")] = None,
    samples: int | None = None,
    out: Path | None = None,
    device: str | None = None,
    quiet: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Predict inputs of your own, or the test set and the data sets out of the domain again, with a trained run.

    Args:
        run: folder of the run.
        inputs: table (.csv, .tsv, .npy), picture, folder of pictures, or texts (.txt, one a line).
        samples: of the posterior, to average over; the run's evaluate.samples unless given.
        out: write the predictions for --input to this .csv file, with the probability of every class.
        device: where to compute; a GPU if there is one unless given.
        quiet: no progress.
    """
    training.RunFolder(run).read_run()
    check_device(device)
    progress = False if quiet else None
    if samples is not None and samples < 1:
        raise ValueError(f"--samples {samples} must be at least 1; 64 is usual")
    if inputs is None:
        training.predict_run(run, samples=samples, device=device, progress=progress)
        say(f"wrote {training.RunFolder(run).predictions}; next: varlearn score {run}")
        return 0
    if not inputs.expanduser().exists():
        raise ValueError(f"--input {inputs} does not exist; give a file of inputs")
    if out is not None and (out.suffix != ".csv" or not out.parent.is_dir()):
        raise ValueError(f"--out {out} must be a .csv file in a folder that exists")
    found = training.predict_inputs(run, inputs, samples=samples, device=device, progress=progress)
    if out is not None:
        _write_csv(out, found.columns, found.rows)
        say(f"wrote {len(found.rows)} predictions to {out}")
        return 0
    shown = [place for place, name in enumerate(found.columns) if not name.startswith("p(")]
    cells = [[_cell(row[place]) for place in shown] for row in found.rows]
    table([found.columns[place] for place in shown], cells, numbers=len(shown) - (2 if "class" in found.columns else 1))
    return 0


def _write_csv(path: Path, columns: list[str], rows: list[list[str | float]]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([columns, *rows])
    write_text(path, text.getvalue())


def _cell(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"


def score(run: Path, /) -> int:
    """Score the predictions of a run.

    Args:
        run: folder of the run.
    """
    training.RunFolder(run).read_run()
    training.score_run(run)
    show_metrics(training.RunFolder(run))
    show_findings(training.advise_run(run))
    return 0


def report(*runs: Path, out: Path | None = None) -> int:
    """Make a page from one run or several: verdict, scores, figures, advice. It needs nothing but a browser.

    Args:
        runs: folders of runs.
        out: folder for the page; that of the run, or runs/report for several, unless given.
    """
    if not runs:
        raise ValueError("no run given; name the folder of at least one, e.g. varlearn report runs/x")
    for run in runs:
        training.RunFolder(run).read_run()
    from varlearn.report import write_report

    for run in runs:
        found = training.advise_run(run)
        if len(runs) == 1:
            show_findings(found)
    target = out or (runs[0] if len(runs) == 1 else Path("runs") / "report")
    page = write_report(runs, target)
    say(f"wrote {page}")
    return 0


def export(
    run: Path,
    /,
    *,
    out: Path,
) -> int:
    """Write the finetuned network of a run as a folder that Hugging Face's from_pretrained reads.

    Args:
        run: folder of the run; its network must be "pretrained".
        out: folder to write: the network at the posterior's mean, its tokenizer, and posterior.safetensors.
    """
    training.RunFolder(run).read_run()
    say(f"wrote {training.export_pretrained(run, out)}")
    return 0
