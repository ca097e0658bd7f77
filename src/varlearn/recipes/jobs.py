"""Run the lines of a table, some of them elsewhere if need be, and gather what came out."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from varlearn import train
from varlearn.files.metrics_file import read_metrics
from varlearn.recipes.tables import Line, Table
from varlearn.train.config import Run
from varlearn.train.run_cost import run_cost

MOST_MEMBERS = 10  # of the curves over the number of members


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
    found = {job.out: job for line in table.lines for seed in range(seeds) for job in line_jobs(line, seed, out)}
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
    from varlearn.recipes.optimizer_tables import with_sgd_epochs
    from varlearn.train.evaluate import finite

    lines = []
    curves = _curves(table, seeds, out)
    deep = [row["scaled_nll"] for row in curves.get("sgd", ())]
    against = any(metric.key == "agreement" for metric in table.metrics)
    for line in table.lines:
        scores = [found for seed in range(seeds) if (found := _line_scores(line, seed, out, deep, against)) is not None]
        lines.append(
            {
                "data": line.data,
                "model": line.model,
                "method": line.method,
                "detail": line.detail,
                "recipe": line.run.recipe,
                "seeds": len(scores),
                "metrics": {
                    metric.key: _summary([score[key] * metric.factor for score in scores if score.get(key) is not None])
                    for metric in table.metrics
                    for key in [line.reads.get(metric.key, metric.key)]
                },
                "paper": {key: figure._asdict() for key, figure in line.published.items()},
            }
        )
    with_sgd_epochs(lines)
    results = {"table": table.name, "title": table.title, "scale": table.lines[0].run.scale, "lines": lines}
    if curves:
        results["curves"] = curves
    results = finite(results)
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / "results.json", json.dumps(results, indent=2) + "\n")
    return results


def line_jobs(line: Line, seed: int, out: Path) -> list[Job]:
    """The runs of a line with one seed: one, or the members of an ensemble, each with its own seed."""
    return [_job(line, seed * line.members + member, out) for member in range(line.members)]


def _job(line: Line, seed: int, out: Path) -> Job:
    run = replace(line.run, seed=seed)
    variant = "".join(f"-{key}={value}" for part in line.changes.values() for key, value in part.items())
    return Job(run, line.changes, out / f"{run.recipe}{variant}-{run.scale}-seed{seed}")


def _line_scores(line: Line, seed: int, out: Path, deep: Sequence[float], against: bool) -> dict[str, Any] | None:
    """The scores of a line with one seed, if wanted also against Monte Carlo; None until its runs are finished."""
    made = line_jobs(line, seed, out)
    if not all(job.finished for job in made):
        return None
    if line.members == 1:
        values = read_metrics(train.RunFolder(made[0].out).metrics)
    else:
        from varlearn.recipes.member_curves import averaged_sets, mixed, scores_of

        values = {"averaged": scores_of(mixed([averaged_sets(job.out) for job in made]))}
    for key in line.path:
        values = values[key]
    found = values | _compared(line, values, deep)
    if line.members == 1:
        found |= run_cost(made[0].out)
    return found | _beside_reference(line, made) if against else found


def _compared(line: Line, values: dict[str, Any], deep: Sequence[float]) -> dict[str, Any]:
    """What a line costs, and how many members of a deep ensemble it is worth, where these are asked for."""
    from varlearn.recipes.comparison_tables import cost
    from varlearn.recipes.member_curves import ensemble_equivalent

    found: dict[str, Any] = {"cost": cost(line.run, line.members)}
    if len(deep) > 1 and values.get("scaled_nll") is not None:
        found["dee"] = ensemble_equivalent(values["scaled_nll"], deep)
    return found


def _beside_reference(line: Line, made: Sequence[Job]) -> dict[str, float]:
    """Agreement and total variation distance of the averaged predictions with Hamiltonian Monte Carlo's."""
    from varlearn.data.hmc_predictives import hmc_predictive
    from varlearn.metrics import agreement, total_variation
    from varlearn.recipes.member_curves import averaged_sets, mixed

    log_probs = mixed([averaged_sets(job.out) for job in made])["test"].log_probs
    reference = hmc_predictive(line.data)[: len(log_probs)].to(log_probs)
    return {"agreement": agreement(log_probs, reference), "total_variation": total_variation(log_probs, reference)}


def _curves(table: Table, seeds: int, out: Path) -> dict[str, Any]:
    """By method, the scores of ensembles of 1, 2, ... of all the members that are finished."""
    ensembles = {line.run.optim.name: line for line in table.lines if line.members > 1}
    found = {}
    for method, line in ensembles.items():
        from varlearn.recipes.member_curves import averaged_sets, member_curve

        made = [job for seed in range(seeds) for job in line_jobs(line, seed, out) if job.finished]
        if made:
            found[method] = member_curve([averaged_sets(job.out) for job in made[:MOST_MEMBERS]])
    return found


def _summary(values: list[float]) -> dict[str, Any]:
    finite = all(map(math.isfinite, values))
    return {
        "mean": statistics.fmean(values) if values else None,
        "std": statistics.stdev(values) if len(values) > 1 and finite else None,
        "values": values,
    }
