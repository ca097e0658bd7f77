"""`varlearn sensitivity` and `varlearn examples`: what each training example of a run does, and the ones to look at."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from varlearn import train as training
from varlearn.cli.run_checks import check_device
from varlearn.cli.show import say, table

if TYPE_CHECKING:
    from varlearn.train.sensitivity_stage import RunSensitivity

Score = Literal["probability", "probability_l2", "probability_max", "paper", "paper_l2", "paper_max"]
By = Literal["paper", "score", "loss", "loo", "accumulated"]
SHOWN = 5  # rows of the table in the terminal


def sensitivity(
    run: Path,
    /,
    *,
    snapshot: int | None = None,
    score: Score = "probability",
    diagonal: Annotated[bool, Parameter(negative="")] = False,
    device: str | None = None,
    quiet: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Compute how sensitive a trained run is to each of its training examples.

    Args:
        run: folder of the run.
        snapshot: an epoch of train.snapshots, whose checkpoint is used instead of the result.
        score: what the score measures; the paper's stands in the files besides.
        diagonal: use the diagonal of V alone, as in the paper's CIFAR-10 appendix.
        device: where to compute; a GPU if there is one unless given.
        quiet: no progress.
    """
    folder = training.RunFolder(run)
    folder.read_run()
    check_device(device)
    path = training.sensitivity_run(
        run, snapshot=snapshot, score=score, diagonal=diagonal, device=device, progress=False if quiet else None
    )
    found = training.load_run_sensitivity(run)
    values = found.values
    loss, loo = (values[name].double().mean().item() for name in ("loss", "loo_loss"))
    say(f"{len(values['ids']):,} training examples: loss {loss:.4g}, leave-one-out loss {loo:.4g}")
    _show_most(found)
    say(f"wrote {path} and {path.with_suffix('.csv')}; see also: varlearn examples {run}")
    return 0


def examples(
    run: Path,
    /,
    *,
    most: int = 40,
    by: By = "paper",
    only: Annotated[str | None, Parameter(name="--class")] = None,
    snapshot: int | None = None,
    out: Path | None = None,
    device: str | None = None,
    quiet: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Make a page of the examples that a run is most and least sensitive to, of all and of each class.

    Args:
        run: folder of the run; sensitivities are computed unless those of the same snapshot are there.
        most: examples to show of all classes together, and as many again shared out among the classes.
        by: what decides: the paper's |V e|, the score, the loss, the leave-one-out loss, or the mean score of training.
        only: show this class alone.
        snapshot: an epoch of train.snapshots, whose checkpoint is used instead of the result.
        out: folder for gallery.html and gallery.png; that of the run unless given.
        device: where to compute; a GPU if there is one unless given.
        quiet: no progress.
    """
    folder = training.RunFolder(run)
    config = folder.read_run()
    check_device(device)
    if most < 1:
        raise ValueError(f"--most {most} must be at least 1; 40 is usual")
    if by == "accumulated" and config.train.loo_every is None:
        raise ValueError("--by accumulated needs a run that measured while it trained; train with --train.loo_every 0")
    known = training.load_run_sensitivity(run).about if folder.sensitivity.exists() else {"snapshot": "none"}
    if known.get("snapshot") != snapshot:
        training.sensitivity_run(run, snapshot=snapshot, device=device, progress=False if quiet else None)
    from varlearn.recipes.example_gallery import gallery_of_run

    page, picture = gallery_of_run(run, most=most, by=by, only=only, out=out)
    say(f"wrote {page}" + (f" and {picture}" if picture else ""))
    return 0


def _show_most(found: RunSensitivity) -> None:
    values, classes = found.values, found.about["classes"]
    order = values["score"].argsort(descending=True)[:SHOWN].tolist()
    columns = ["most sensitive", "score", "|V e|", "loss", "LOO loss"]
    names = ("score", "paper_score", "loss", "loo_loss")
    rows = [[str(values["ids"][row].item()), *(f"{values[name][row].item():.4g}" for name in names)] for row in order]
    if "labels" in values and classes:
        columns.insert(1, "label")
        for row, place in zip(rows, order, strict=True):
            row.insert(1, classes[values["labels"][place]])
    table(columns, rows, numbers=len(names))
