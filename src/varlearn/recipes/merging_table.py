"""The paper's Table 5: networks finetuned on four sets of reviews are merged with the one that they started from."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from varlearn import posterior
from varlearn.files.atomic import write_text
from varlearn.merging import merge, squared_gradients
from varlearn.posterior import Point
from varlearn.posterior.binding import write_into
from varlearn.recipes.jobs import Job, finish
from varlearn.recipes.paper_comparisons import MERGED_TASKS, merging
from varlearn.recipes.scales import Scale
from varlearn.recipes.sentiment_finetuning import BASE, SETS, from_base, sentiment
from varlearn.train.build import build_batches, build_examples, build_model
from varlearn.train.config import Run
from varlearn.train.evaluate import predict_task, score
from varlearn.train.pretrained_export import export_pretrained

LABELS = {"squared-gradient": "SG", "ivon": "IVON", "task-arithmetic": "task arithmetic", "average": "average"}
SG_EXAMPLES = {"small": 256, "paper": None}  # for the squared gradients; they are scaled up to the whole set
TEST_EXAMPLES = {"small": 1_000, "paper": None}


def merging_jobs(scale: Scale, seeds: int, out: Path) -> list[Job]:
    """The runs behind the table: for each seed the base on IMDB, then four that start from it.

    >>> [job.run.data.name for job in merging_jobs("paper", 1, Path("runs"))]
    ['imdb', 'yelp_polarity', 'rotten_tomatoes', 'sst2', 'amazon_polarity']
    """
    if seeds < 1:
        raise ValueError(f"seeds={seeds} must be at least 1")
    found = []
    for seed in range(seeds):
        base = str(base_folder(out, scale, seed))
        for data in sorted(SETS, key=lambda name: name != BASE):
            run = sentiment(data, "ivon", scale, seed)
            run = run if data == BASE else from_base(run, base)
            changes = {} if data == BASE else {"model": {"path": base}}
            found.append(Job(run, changes, out / f"{run.recipe}-{scale}-seed{seed}"))
    return found


def base_folder(out: Path, scale: Scale, seed: int) -> Path:
    """Where the base of a seed is exported to."""
    return out / f"base-{scale}-seed{seed}"


def merged_table(
    scale: Scale,
    seeds: int,
    out: Path,
    *,
    train: bool = True,
    progress: bool | None = None,
    device: str | None = None,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Make the runs, merge, and score each merged network on the test sets of all five tasks.

    h_t is IVON's, or the squared gradients of the finetuned network on its training data with labels drawn from the
    network; h_0 are the squared gradients of the base in both cases, as in the paper. Averaging and task arithmetic
    use no curvature; the paper's table does not have them. Finished runs and merges are kept.

    Args:
        scale: "paper" or "small".
        seeds: how many bases, each with its four networks.
        out: folder of the runs.
        train: False gathers what is there.
        progress: show bars.
        device: where to train.
        say: is told what is done.

    Returns:
        For JSON: "lines" with the accuracies in per cent of each method, per task and on average, beside the paper's.
    """
    found: list[dict[str, dict[str, float]]] = []
    for seed in range(seeds):
        jobs = [job for job in merging_jobs(scale, seeds, out) if job.run.seed == seed]
        cached = out / f"merged-{scale}-seed{seed}.json"
        if train and not cached.exists():
            for job in jobs:
                say(f"{job.out.name}{' is finished already' if job.finished else ''}")
                finish(job, progress=progress, device=device)
                if job is jobs[0] and not base_folder(out, scale, seed).exists():
                    export_pretrained(job.out, base_folder(out, scale, seed))
            scores = _scores(jobs, scale, say)
            write_text(cached, json.dumps(scores, indent=2) + "\n")
        if cached.exists():
            found.append(json.loads(cached.read_text(encoding="utf-8")))
    results = {"table": "table5", "scale": scale, "seeds": len(found), "lines": _lines(found)}
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / "results.json", json.dumps(results, indent=2) + "\n")
    return results


def _scores(jobs: list[Job], scale: Scale, say: Callable[[str], None]) -> dict[str, dict[str, float]]:
    """Accuracy of each merged network on each task."""
    base, tasks = jobs[0], jobs[1:]
    learned = {job.out: posterior.load(job.out / "posterior.safetensors") for job in jobs}
    gradients = {}
    for job in jobs:
        say(f"squared gradients of {job.out.name}")
        gradients[job.out] = _squared_gradients(job.run, learned[job.out], SG_EXAMPLES[scale])
    start, models = learned[base.out], [learned[job.out] for job in tasks]
    prior, measured = gradients[base.out], [gradients[job.out] for job in tasks]
    merged = {
        "squared-gradient": merge(start.mean, models, hess=measured, base_hess=prior),
        "ivon": merge(start.mean, models, base_hess=prior),
        "task-arithmetic": merge(start.mean, models, method="task_arithmetic"),
        "average": merge(start.mean, models, method="average"),
    }
    found: dict[str, dict[str, float]] = {method: {} for method in merged}
    for job in jobs:
        run = replace(job.run, evaluate=replace(job.run.evaluate, subset=TEST_EXAMPLES[scale]))
        examples = build_examples(run, "test")
        if scale == "small" and len(examples) > 1:  # sorted by class in some sets: evenly spaced ones
            full = build_examples(replace(run, evaluate=replace(run.evaluate, subset=None)), "test")
            step = max(1, len(full) // len(examples))
            examples = full.select(torch.arange(0, len(full), step)[: len(examples)])
        model = _model(run, examples, start)
        for method, weights in merged.items():
            point = Point(weights, start.fixed)
            batches = build_batches(run, examples, train=False)
            predictions = predict_task("classification", model, point, batches, 1, 0, False)
            found[method][_set_of(job)] = 100 * score(predictions)["accuracy"]
        say(f"{job.out.name}: merged networks scored on {len(examples):,} examples")
    for line in found.values():
        line["average"] = statistics.fmean(line.values())
    return found


def _squared_gradients(run: Run, learned: Any, examples: int | None) -> dict[str, Tensor]:
    """The SG estimate for the sum of the losses over the run's training data, of a random part of them."""
    train = build_examples(run, "train")
    count = min(len(train), examples or len(train))
    chosen = train.select(torch.randperm(len(train), generator=torch.Generator().manual_seed(0))[:count])
    model = _model(run, train, learned)
    found = squared_gradients(model, build_batches(run, chosen, train=False), labels="sampled", seed=run.seed)
    return {name: value * (len(train) / count) for name, value in found.items()}


def _model(run: Run, examples: Any, learned: Any) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        model = build_model(run, examples)
    write_into(model, {**(learned.fixed or {}), **learned.mean})
    return model.eval()


def _set_of(job: Job) -> str:
    return job.run.recipe.split("-")[0]


def _lines(found: Iterable[dict[str, dict[str, float]]]) -> list[dict[str, Any]]:
    """A line for each method: mean and standard deviation over seeds, and the paper's figures where it has them."""
    seeds, published, lines = list(found), merging(), []
    for method, label in LABELS.items():
        columns = {}
        for task in (*MERGED_TASKS, "average"):
            values = [one[method][task] for one in seeds]
            columns[task] = {
                "mean": statistics.fmean(values) if values else None,
                "std": statistics.stdev(values) if len(values) > 1 else None,
                "values": values,
            }
        paper = published.get((method,), {})
        theirs = {task: figure._asdict() for task, figure in paper.items()}
        lines.append({"method": method, "label": label, "metrics": columns, "paper": theirs})
    return lines
