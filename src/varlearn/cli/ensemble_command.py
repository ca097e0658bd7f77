"""`varlearn ensemble`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from varlearn import train as training
from varlearn.cli.run_checks import check_device
from varlearn.cli.show import say, show_findings
from varlearn.cli.train_command import show_metrics


def ensemble(
    *runs: Path,
    out: Path | None = None,
    weights: Literal["equal", "validation", "loo"] = "equal",
    samples: int | None = None,
    device: str | None = None,
    quiet: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Make one run of several finished ones, predict, and score.

    Args:
        runs: folders of the members, at least two, with the same network and data.
        out: folder of the ensemble; runs/ensemble unless given.
        weights: equal; or learned from the validation examples of the members, or from leave-one-out estimates.
        samples: of each member's posterior, to average over; the first run's evaluate.samples unless given.
        device: where to compute; a GPU if there is one unless given.
        quiet: no progress.
    """
    if samples is not None and samples < 1:
        raise ValueError(f"--samples {samples} must be at least 1; 64 is usual")
    check_device(device)
    progress = False if quiet else None
    folder = training.RunFolder(out or Path("runs") / "ensemble")
    training.ensemble(runs, folder.out, weights=weights, device=device, progress=progress)
    from varlearn.train.ensemble_file import read_ensemble

    made = read_ensemble(folder.ensemble)
    shares = ", ".join(f"{weight:.3f}" for weight in made.weights)
    say(f"{made.label}; weights {shares}")
    if made.held_out_nll:
        equal, learned = made.held_out_nll["equal"], made.held_out_nll["learned"]
        say(f"NLL on what taught the weights: {equal:.4f} with equal weights, {learned:.4f} with these")
    if not folder.metrics.exists():
        training.predict_run(folder.out, samples=samples, device=device, progress=progress)
        training.score_run(folder.out)
    show_metrics(folder)
    show_findings(training.advise_run(folder.out))
    say(f"wrote {folder.out}; next: varlearn report {folder.out}")
    return 0
