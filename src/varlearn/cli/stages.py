"""`varlearn predict`, `score` and `report`: the later stages of a run, each from its neighbour's file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from varlearn import train as training
from varlearn.cli.show import say
from varlearn.cli.train_command import show_metrics


def predict(
    run: Path,
    /,
    *,
    device: str | None = None,
    quiet: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Predict the test set, and the data sets out of the domain, with the posterior of a trained run.

    Args:
        run: folder of the run.
        device: where to compute; a GPU if there is one unless given.
        quiet: no progress.
    """
    training.predict_run(run, device=device, progress=False if quiet else None)
    say(f"wrote {training.RunFolder(run).predictions}; next: varlearn score {run}")
    return 0


def score(run: Path, /) -> int:
    """Score the predictions of a run.

    Args:
        run: folder of the run.
    """
    training.score_run(run)
    show_metrics(training.RunFolder(run))
    return 0


def report(*runs: Path, out: Path | None = None) -> int:
    """Make a page with figures from one run, or several side by side.

    Args:
        runs: folders of runs.
        out: folder for the page and the figures; that of the run, or runs/report for several, unless given.
    """
    if not runs:
        raise ValueError("no run given; name the folder of at least one, e.g. varlearn report runs/x")
    try:
        from varlearn.report import write_report
    except ModuleNotFoundError as error:
        if error.name not in ("matplotlib", "cycler"):
            raise
        raise ModuleNotFoundError("a report needs matplotlib; pip install 'varlearn[plot]'") from error
    target = out or (runs[0] if len(runs) == 1 else Path("runs") / "report")
    page = write_report(runs, target)
    say(f"wrote {page}")
    return 0
