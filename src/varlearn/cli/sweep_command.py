"""`varlearn sweep`."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from varlearn import train as training
from varlearn.cli.known_names import RecipeName, check_names
from varlearn.cli.missing_packages import require
from varlearn.cli.overrides import given
from varlearn.cli.run_checks import check_device
from varlearn.cli.setting_flags import setting_names, suggestion
from varlearn.cli.show import say, table
from varlearn.cli.train_command import chosen
from varlearn.recipes.grid import TITLES, Criterion, GridPoint, best, combinations, point, results
from varlearn.recipes.range_search import RangeSearch, bounds, corners
from varlearn.train.config import Run, to_json


def sweep(
    recipe: RecipeName,
    /,
    *grid: Annotated[str, Parameter(allow_leading_hyphen=True)],
    out: Path | None = None,
    scale: Literal["small", "paper"] = "small",
    seed: int = 0,
    seeds: int = 1,
    trials: int | None = None,
    by: Criterion = "validation",
    device: str | None = None,
    quiet: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Train combinations of the given settings, and freeze the one with the lowest NLL on validation data or LOO loss.

    Args:
        recipe: its name, see varlearn list; or a file of settings.
        grid: settings with their values, e.g. --optim.lr 0.1,0.3,1; with --trials also ranges, --optim.lr 0.01:1.
        out: folder of the runs; runs/sweep-RECIPE-SCALE unless given.
        scale: "small" or "paper", as for train.
        seed: the first one.
        seeds: runs of each combination.
        trials: combinations that Optuna proposes one after the other; every combination of the values unless given.
        by: "validation" for the NLL on examples held out; "loo" for the leave-one-out loss of the training examples,
            which holds none out.
        device: where to compute; a GPU if there is one unless given.
        quiet: no progress.
    """
    if seeds < 1:
        raise ValueError(f"--seeds {seeds} must be at least 1")
    values = grid_values(list(grid))
    folder = out or Path("runs") / f"sweep-{Path(recipe).stem}-{scale}"
    at = partial(_checked_point, recipe, scale, seed, seeds, folder, by)
    train_points = partial(_train_points, device=device, quiet=quiet)
    if trials is None:
        _refuse_ranges(values)
        points = [at(words) for words in combinations(values)]
        check_device(device)
        failed = train_points(points)
    else:
        points, failed = _search(values, trials, seed, at, train_points, device)
    return _conclude(points, list(values), folder) or failed


def _search(
    values: dict[str, list[str]],
    trials: int,
    seed: int,
    at: Callable[[dict[str, str]], GridPoint],
    train_points: Callable[[list[GridPoint]], int],
    device: str | None,
) -> tuple[list[GridPoint], int]:
    """Train what Optuna proposes. Runs that are finished already are told to it again, in the same order."""
    if trials < 1:
        raise ValueError(f"--trials {trials} must be at least 1")
    for words in combinations(corners(values)):
        at(words)
    check_device(device)
    require("optuna")
    search, points, failed = RangeSearch(values, seed), list[GridPoint](), 0
    for _ in range(trials):
        proposed = at(search.propose())
        failed |= train_points([proposed])
        search.learn(proposed.nll())
        points += [] if proposed in points else [proposed]
    return points, failed


def _refuse_ranges(values: dict[str, list[str]]) -> None:
    for name, words in values.items():
        for word in words:
            if ":" in word and bounds(word) is not None:
                raise ValueError(f"--{name} {word} is a range; say how many combinations to try, e.g. --trials 20")


def _checked_point(
    recipe: str,
    scale: Literal["small", "paper"],
    seed: int,
    seeds: int,
    folder: Path,
    by: Criterion,
    words: dict[str, str],
) -> GridPoint:
    """The runs of one combination, after everything about them is checked that can be before training."""
    found = point(words, _run(recipe, scale, seed, words), seeds, folder, by)
    for job in found.jobs:
        check_names(job.run)
        _check_folder(job.out, job.run)
    return found


def _train_points(points: list[GridPoint], *, device: str | None, quiet: bool) -> int:
    """Finish the runs of these combinations; 1 if one of them failed."""
    from varlearn.recipes.jobs import run_all

    progress = False if quiet else None
    jobs = [job for one in points for job in one.jobs]
    failed = int(bool(list(run_all(jobs, progress=progress, device=device, say=say))))
    for job in (job for one in points if one.by == "loo" for job in one.jobs if job.finished):
        if not training.RunFolder(job.out).sensitivity.exists():
            training.sensitivity_run(job.out, progress=progress, device=device)
    return failed


def grid_values(words: list[str]) -> dict[str, list[str]]:
    """From the words of the command to the values of each setting.

    >>> grid_values(["--optim.lr", "0.1,0.3", "--data.no-augment"])
    {'optim.lr': ['0.1', '0.3'], 'data.augment': ['no']}
    """
    values: dict[str, list[str]] = {}
    words = [part for word in words for part in (word.split("=", 1) if word.startswith("--") else [word])]
    place = 0
    while place < len(words):
        flag = words[place]
        section, _, leaf = flag.removeprefix("--").rpartition(".")
        negative = leaf.startswith("no-")
        name = f"{section}.{leaf.removeprefix('no-')}"
        if not flag.startswith("--") or name not in setting_names():
            meant = suggestion(flag, []) if flag.startswith("--") else None
            cure = f"did you mean {meant}?" if meant else "give settings as in --optim.lr 0.1,0.3"
            raise ValueError(f"{flag} is not a setting of a run; {cure}")
        following = words[place + 1] if place + 1 < len(words) else "--"
        given_value = not following.startswith("--")
        values[name] = ["no"] if negative else following.split(",") if given_value else ["yes"]
        place += 2 if given_value and not negative else 1
    if not values:
        raise ValueError("no setting to try; give some, e.g. --optim.lr 0.1,0.3,1")
    return values


def _run(recipe: str, scale: Literal["small", "paper"], seed: int, words: dict[str, str]) -> Run:
    """The run of one combination, with values converted as `varlearn train` does."""
    from varlearn.cli.app import app

    flags: list[str] = []
    for name, value in words.items():
        section, _, leaf = name.rpartition(".")
        switch = {"yes": [f"--{name}"], "no": [f"--{section}.no-{leaf}"]}
        flags += switch.get(value, [f"--{name}", value])
    _, bound, *_ = app.parse_args(["train", recipe, *flags], exit_on_error=False, print_error=False)
    settings: Any = bound.arguments.get("settings")
    return chosen(recipe, None, scale, seed, None, given(settings) if settings is not None else {})


def _check_folder(out: Path, run: Run) -> None:
    from varlearn.train.run_folder import RunFolder

    RunFolder(out).check(run, resume=True)


def _conclude(points: list[GridPoint], names: list[str], folder: Path) -> int:
    """Print the table, write `sweep.json` and `best.json`."""
    from varlearn.files.atomic import write_text

    rows, by = results(points), points[0].by
    winner, criterion = best(points), f"{by}_nll"
    write_text(folder / "sweep.json", json.dumps({"criterion": TITLES[by], "points": rows}, indent=2) + "\n")
    order = sorted(range(len(rows)), key=lambda place: _sortable(rows[place][criterion]))
    varied = [name for name in names if len({one.words[name] for one in points}) > 1] or names
    cells = [[*(rows[place]["settings"][name] for name in varied), _cell(rows[place][criterion])] for place in order]
    table([*varied, TITLES[by]], cells, title=str(folder), numbers=len(varied) + 1)
    if winner is None:
        say("no run is finished, so there is no best")
        return 1
    write_text(folder / "best.json", to_json(winner.jobs[0].run))
    say(f"the best has {', '.join(f'{name}={winner.words[name]}' for name in varied)}")
    say(f"wrote {folder / 'best.json'}; train with it: varlearn train {folder / 'best.json'} --out runs/best")
    return 0


def _sortable(nll: float | str | None) -> float:
    return float("inf") if nll is None else float(nll)


def _cell(nll: float | str | None) -> str:
    return "failed" if nll is None else f"{float(nll):.4f}"
