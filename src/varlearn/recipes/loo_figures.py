"""Figures 5, 6 and 8 of the paper: leave-one-out losses during training, and a gallery of sensitive images."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from varlearn import train
from varlearn.files.atomic import write_text
from varlearn.files.checked_json import read_json_lines
from varlearn.methods import named
from varlearn.recipes.catalogue import recipe
from varlearn.recipes.jobs import Job
from varlearn.recipes.scales import Scale
from varlearn.train.config import Run

FIGURES = ("loo-imagenet", "loo-cifar10", "sensitivity-gallery")
# Accuracies at the mean that the paper states, in %: figure, network, method.
PUBLISHED = {
    ("loo-imagenet", "resnet50", "ivon"): 75.0,
    ("loo-imagenet", "resnet50", "adamw"): 74.7,
    ("loo-cifar10", "resnet18", "ivon"): 93.68,
    ("loo-cifar10", "preresnet110", "ivon"): 93.52,
}
STAND_IN: dict[str, dict[str, Any]] = {
    "data": {"subset": 2_000},
    "train": {"steps": 400, "warmup": 40},
    "evaluate": {"samples": 8, "subset": 2_000},
}
"""What the small scale does in place of ImageNet: ResNet-20 on the first 2,000 images of CIFAR-10, 10 epochs."""
SHARK, SMALL_CLASS = "n01484850", "dog"  # the great white shark, as ImageNet names its folder
EPOCHS = {"paper": (50, 100), "small": (5, 10)}  # at which the gallery looks


def figure_jobs(figure: str, scale: Scale, seeds: int, out: Path) -> list[Job]:
    """The runs behind a figure.

    - Figure 5 ("loo-imagenet"): ResNet-50 for 100 epochs. IVON with alpha 3, beta2 1 - 1e-6 and h0 0.008, the best of
      0.008, 0.01 and 0.05; AdamW with alpha 0.001 and weight decay 0.1.
    - Figure 8 ("loo-cifar10"): ResNet-18 and PreResNet-110 as in the image tables, with the diagonal of V alone. IVON
      with h0 0.1, the best of 0.01, 0.05, 0.1 and 0.5.
    - Figure 6 ("sensitivity-gallery"): Figure 5's IVON, with snapshots.

    Args:
        figure: one of `FIGURES`.
        scale: "paper" or "small".
        seeds: runs of each method; the gallery has one.
        out: folder of the runs.

    >>> [
    ...     job.run.optim.hess_init
    ...     for job in figure_jobs("loo-cifar10", "paper", 1, Path("runs"))
    ...     if job.run.optim.name == "ivon"
    ... ]
    [0.1, 0.1]
    >>> figure_jobs("loo-imagenet", "paper", 1, Path("runs"))[0].run.optim.lr
    3.0
    """
    jobs = []
    for seed in range(1 if figure == "sensitivity-gallery" else seeds):
        for name, changes in _runs(figure, scale):
            run = changed(recipe(name, scale, seed), changes)
            jobs.append(Job(run, changes, out / f"{figure}-{name}-{scale}-seed{seed}"))
    return jobs


def changed(run: Run, changes: dict[str, dict[str, Any]]) -> Run:
    """The run with some settings replaced, by section.

    >>> changed(recipe("digits-sgd"), {"optim": {"lr": 0.5}}).optim.lr
    0.5
    """
    sections = {name: replace(getattr(run, name), **values) for name, values in changes.items()}
    return replace(run, **sections)


def _runs(figure: str, scale: Scale) -> list[tuple[str, dict[str, dict[str, Any]]]]:
    """Names of recipes, and what changes in them."""
    measured: dict[str, Any] = {"loo_every": 0, "loo_examples": 10_000 if scale == "paper" else 500}
    if figure == "loo-cifar10":
        measured |= {"loo_diagonal": True}
        models = [f"cifar10-{model}" for model in ("resnet18", "preresnet110")]
        rows = [(f"{model}-{method}", method) for model in models for method in ("ivon", "adamw", "sgd")]
        return [
            (name, {"train": measured, **({"optim": {"hess_init": 0.1}} if method == "ivon" else {})})
            for name, method in rows
        ]
    shown = figure == "sensitivity-gallery"
    more: dict[str, Any] = {"snapshots": EPOCHS[scale]} if shown else measured
    methods = ("ivon",) if shown else ("ivon", "adamw")
    if scale == "small":
        changes = {**STAND_IN, "train": {**STAND_IN["train"], **more}}
        return [(f"cifar10-resnet20-{method}", changes) for method in methods]
    ivon = {"lr": 3.0, "beta2": 1 - 1e-6, "hess_init": 0.008}
    settings = {"ivon": {"optim": ivon}, "adamw": {"optim": {"lr": 0.001, "weight_decay": 0.1}}}
    return [
        (f"imagenet-resnet50-{method}", {**settings[method], "train": {"epochs": 100, **more}}) for method in methods
    ]


def curve_of(out: Path) -> dict[str, list[float]]:
    """Steps, test loss, leave-one-out loss and training loss (of the same examples) from the log of a run."""
    test: dict[int, float] = {}
    loo: dict[int, tuple[float, float]] = {}
    for record in read_json_lines(train.RunFolder(out).log).records:
        if record.get("split") == "leave-one-out":
            loo[record["step"]] = float(record["eval"]["nll"]), float(record["eval"]["train_nll"])
        elif record.get("split") == "test":
            test[record["step"]] = float(record["eval"]["nll"])
    steps = sorted(test.keys() & loo.keys())
    return {
        "step": [float(step) for step in steps],
        "test": [test[step] for step in steps],
        "loo": [loo[step][0] for step in steps],
        "train": [loo[step][1] for step in steps],
    }


def faithfulness(curve: dict[str, list[float]]) -> dict[str, float | None]:
    """How close leave-one-out comes to the test loss: mean absolute gap and correlation over the curve.

    >>> faithfulness({"test": [3.0, 2.0, 1.0], "loo": [3.5, 2.5, 1.5], "train": [3.0, 1.0, 0.0]})["gap"]
    0.5
    """
    test = curve["test"]

    def gap(values: Sequence[float]) -> float | None:
        return statistics.fmean(abs(a - b) for a, b in zip(values, test, strict=True)) if test else None

    finite = len(test) > 1 and all(map(math.isfinite, (*test, *curve["loo"])))
    varies = finite and len(set(test)) > 1 and len(set(curve["loo"])) > 1
    return {
        "last_test": test[-1] if test else None,
        "last_loo": curve["loo"][-1] if test else None,
        "gap": gap(curve["loo"]),
        "train_gap": gap(curve["train"]),
        "correlation": statistics.correlation(curve["loo"], test) if varies else None,
    }


def collect_curves(figure: str, jobs: Sequence[Job], out: Path) -> list[dict[str, Any]]:
    """What the finished runs say, written to `out/results.json`, and a figure of each network as PNG and SVG."""
    from varlearn.report.figures import curves
    from varlearn.report.style import save

    rows = []
    for job in jobs:
        if not job.finished:
            continue
        run = job.run
        scores = json.loads(train.RunFolder(job.out).metrics.read_text(encoding="utf-8"))
        row = {"data": run.data.name, "model": run.model.name, "method": run.optim.name, "seed": run.seed}
        published = PUBLISHED.get((figure, run.model.name, run.optim.name)) if run.scale == "paper" else None
        curve = curve_of(job.out)
        row |= {"accuracy": 100 * float(scores["mean"]["accuracy"]), "paper_accuracy": published}
        rows.append(row | faithfulness(curve) | {"curve": curve})
        made = {
            "test loss": list(zip(curve["step"], curve["test"], strict=True)),
            "leave-one-out loss": list(zip(curve["step"], curve["loo"], strict=True)),
            "training loss": list(zip(curve["step"], curve["train"], strict=True)),
        }
        save(curves(made, "step", f"loss, {named(run.optim.name).label}", log=True), job.out / "leave_one_out")
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / "results.json", json.dumps({"figure": figure, "rows": rows}, indent=2) + "\n")
    return rows


def galleries(job: Job, *, most: int = 12, device: str | None = None, progress: bool | None = None) -> list[Path]:
    """Figure 6: the gallery of one class at each snapshot, with the distribution of its sensitivities."""
    from varlearn.recipes.example_gallery import gallery_of_run

    name = SHARK if job.run.scale == "paper" else SMALL_CLASS
    pages = []
    for epoch in job.run.train.snapshots:
        path = train.sensitivity_run(job.out, snapshot=epoch, score="paper", device=device, progress=progress)
        target = job.out / f"epoch-{epoch}"
        page, _ = gallery_of_run(job.out, most=most, by="paper", only=name, out=target)
        for made in (path, path.with_suffix(".csv")):
            made.replace(target / made.name)
        pages.append(page)
    return pages
