"""Run the lines of a table, some of them elsewhere if need be, and gather what came out."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from varlearn import train
from varlearn.files.metrics_file import read_metrics
from varlearn.recipes.tables import Line, Table
from varlearn.train.config import Run


@dataclass(frozen=True)
class Job:
    """A run to be made, what it changes in its recipe, and its folder."""

    run: Run
    changes: dict[str, Any]
    out: Path

    @property
    def finished(self) -> bool:
        """Whether the folder holds this very run, scored."""
        folder = train.RunFolder(self.out)
        return folder.metrics.exists() and folder.config.exists() and folder.read_run() == self.run


def chosen(table: Table, models: Sequence[str] = (), data: Sequence[str] = (), methods: Sequence[str] = ()) -> Table:
    """The table with the lines that are asked for; an empty filter lets everything pass.

    >>> from varlearn.recipes.tables import table
    >>> [line.method for line in chosen(table("table1"), ["resnet20"], ["cifar10"], ["ivon"]).lines]
    ['ivon@mean', 'ivon']
    """
    lines = table.lines
    for what, wanted, value in (
        ("models", models, lambda line: line.model),
        ("data", data, lambda line: line.data),
        ("methods", methods, lambda line: line.run.optim.name),
    ):
        known = {value(line): None for line in table.lines}
        for one in wanted:
            if one not in known:
                raise ValueError(f"--{what} {one} is not in {table.name}; it has {', '.join(known)}")
        lines = tuple(line for line in lines if not wanted or value(line) in wanted)
    if not lines:
        raise ValueError(f"no line of {table.name} passes all the filters; widen one of --models, --data, --methods")
    return replace(table, lines=lines)


def jobs(table: Table, seeds: int, out: Path) -> list[Job]:
    """The runs behind a table, each once: lines may share one."""
    if seeds < 1:
        raise ValueError(f"seeds={seeds} must be at least 1")
    found = {job.out: job for line in table.lines for seed in range(seeds) for job in [_job(line, seed, out)]}
    return list(found.values())


def finish(job: Job, *, progress: bool | None = None, device: str | None = None) -> None:
    """Train, predict and score a run, from wherever it stopped."""
    folder = train.RunFolder(job.out)
    if job.finished:
        return
    train.fit(job.run, job.out, resume=folder.config.exists(), progress=progress, device=device)
    train.predict_run(job.out, progress=progress, device=device)
    train.score_run(folder.out)
    train.advise_run(folder.out)


def run_all(
    todo: Sequence[Job], *, progress: bool | None, device: str | None, say: Callable[[str], None]
) -> Iterator[tuple[Job, str]]:
    """Finish the jobs in order; an error ends its run, not the others, and is handed out with its words."""
    for number, job in enumerate(todo, 1):
        name = f"{number} of {len(todo)}: {job.out.name}"
        if job.finished:
            say(f"{name} is finished already")
            continue
        say(name)
        try:
            finish(job, progress=progress, device=device)
        except Exception as error:
            say(f"{job.out.name} failed: {error}")
            yield job, " ".join(str(error).split()) or type(error).__name__


def collect(table: Table, seeds: int, out: Path) -> dict[str, Any]:
    """What the finished runs say, line by line, beside the paper; written to `out/results.json` too.

    Returns:
        A dict for JSON: "lines" with names, number of seeds, and for each metric the values, their mean and standard
        deviation in the paper's unit, and the paper's own.
    """
    from varlearn.files.atomic import write_text

    lines = []
    for line in table.lines:
        scores = [_scores(job, line.path) for seed in range(seeds) if (job := _job(line, seed, out)).finished]
        lines.append(
            {
                "data": line.data,
                "model": line.model,
                "method": line.method,
                "detail": line.detail,
                "recipe": line.run.recipe,
                "seeds": len(scores),
                "metrics": {
                    metric.key: _summary(
                        [score[metric.key] * metric.factor for score in scores if score.get(metric.key) is not None]
                    )
                    for metric in table.metrics
                },
                "paper": {key: figure._asdict() for key, figure in line.published.items()},
            }
        )
    results = {"table": table.name, "title": table.title, "scale": table.lines[0].run.scale, "lines": lines}
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / "results.json", json.dumps(results, indent=2) + "\n")
    return results


def _job(line: Line, seed: int, out: Path) -> Job:
    run = replace(line.run, seed=seed)
    variant = "".join(f"-{key}={value}" for part in line.changes.values() for key, value in part.items())
    return Job(run, line.changes, out / f"{run.recipe}{variant}-{run.scale}-seed{seed}")


def _scores(job: Job, path: tuple[str, ...]) -> dict[str, Any]:
    values = read_metrics(train.RunFolder(job.out).metrics)
    for key in path:
        values = values[key]
    return values


def _summary(values: list[float]) -> dict[str, Any]:
    return {
        "mean": statistics.fmean(values) if values else None,
        "std": statistics.stdev(values) if len(values) > 1 else None,
        "values": values,
    }
