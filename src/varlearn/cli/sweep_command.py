"""`varlearn sweep`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from varlearn.cli.known_names import RecipeName, check_names
from varlearn.cli.overrides import given
from varlearn.cli.run_checks import check_device
from varlearn.cli.setting_flags import setting_names, suggestion
from varlearn.cli.show import say, table
from varlearn.cli.train_command import chosen
from varlearn.recipes.grid import Point, best, combinations, point, results
from varlearn.train.config import Run, to_json


def sweep(
    recipe: RecipeName,
    /,
    *grid: Annotated[str, Parameter(allow_leading_hyphen=True)],
    out: Path | None = None,
    scale: Literal["small", "paper"] = "small",
    seed: int = 0,
    seeds: int = 1,
    device: str | None = None,
    quiet: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Train every combination of the given settings, and freeze the one with the lowest NLL on validation data.

    Args:
        recipe: its name, see varlearn list; or a file of settings.
        grid: settings with their values, e.g. --optim.lr 0.1,0.3,1.
        out: folder of the runs; runs/sweep-RECIPE-SCALE unless given.
        scale: "small" or "paper", as for train.
        seed: the first one.
        seeds: runs of each combination.
        device: where to compute; a GPU if there is one unless given.
        quiet: no progress.
    """
    if seeds < 1:
        raise ValueError(f"--seeds {seeds} must be at least 1")
    values = grid_values(list(grid))
    folder = out or Path("runs") / f"sweep-{Path(recipe).stem}-{scale}"
    points = [point(words, _run(recipe, scale, seed, words), seeds, folder) for words in combinations(values)]
    for one in points:
        for job in one.jobs:
            check_names(job.run)
            _check_folder(job.out, job.run)
    check_device(device)
    from varlearn.recipes.jobs import run_all

    jobs = [job for one in points for job in one.jobs]
    failed = list(run_all(jobs, progress=False if quiet else None, device=device, say=say))
    code = _conclude(points, values, folder)
    return 1 if failed else code


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


def _conclude(points: list[Point], values: dict[str, list[str]], folder: Path) -> int:
    """Print the table, write `sweep.json` and `best.json`."""
    from varlearn.files.atomic import write_text

    rows = results(points)
    winner = best(points)
    write_text(folder / "sweep.json", json.dumps({"criterion": "validation NLL", "points": rows}, indent=2) + "\n")
    order = sorted(range(len(rows)), key=lambda place: _sortable(rows[place]["validation_nll"]))
    varied = [name for name, options in values.items() if len(options) > 1] or list(values)
    cells = [[*(rows[place]["settings"][name] for name in varied), _cell(rows[place])] for place in order]
    table([*varied, "validation NLL"], cells, title=str(folder), numbers=len(varied) + 1)
    if winner is None:
        say("no run is finished, so there is no best")
        return 1
    write_text(folder / "best.json", to_json(winner.jobs[0].run))
    say(f"the best has {', '.join(f'{name}={winner.words[name]}' for name in varied)}")
    say(f"wrote {folder / 'best.json'}; train with it: varlearn train {folder / 'best.json'} --out runs/best")
    return 0


def _sortable(nll: float | str | None) -> float:
    return float("inf") if nll is None else float(nll)


def _cell(row: dict[str, Any]) -> str:
    nll = row["validation_nll"]
    return "failed" if nll is None else f"{float(nll):.4f}"
