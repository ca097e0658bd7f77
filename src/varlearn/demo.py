"""`varlearn demo`: AdamW, SGD and variational AdamW on scikit-learn's handwritten digits, in about a minute.

800 training images, 200 validation images, 797 test images, a small convolutional network, 1,200 steps of 50 images,
cosine schedule. AdamW and SGD have the best of five learning rates, found by cross-validation on the training images
(`experiments/demo`). Variational AdamW is not tuned; the validation images fit its temperature. Besides the test set,
each method is shown images that are no digits as it knows them: the test images upside down, and noise.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from varlearn import data, metrics
from varlearn.methods import AUTO, Optim, named
from varlearn.recipes import digits
from varlearn.recipes.jobs import Job, finish
from varlearn.report import write_report
from varlearn.train import Model, Run, advise_run, load_run_predictions

COMPARED = ("adamw", "sgd", AUTO)
VALIDATION = 200
BASELINES = {
    "adamw": Optim("adamw", lr=1e-3, weight_decay=1e-2, beta2=0.999),
    "sgd": Optim("sgd", lr=0.1, weight_decay=2e-4),
}
# Columns that sentences are about: what they say, and whether more is better.
RESULTS = {
    "accuracy %": ("Right answers, in per cent", True),
    "NLL": ("NLL, the price of confident errors", False),
    "ECE": ("ECE, the gap between confidence and accuracy", False),
    "vs. upside down %": ("Telling upside-down images from upright ones (AUROC)", True),
    "vs. noise %": ("Telling noise from digits (AUROC)", True),
}
STRANGE = ("digits-upside-down", "digits-noise")
Scores = dict[str, float]
Say = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Answers:
    """What one model of one seed says: log-probabilities on the test set, and on strange images by name."""

    test: Tensor
    strange: dict[str, Tensor]


def ask(run: Run, out: Path) -> dict[str, Answers]:
    """What a finished run says, by label of the method: at the mean and averaged, where the two differ."""
    method, found = named(run.optim.name), load_run_predictions(out)
    labels = {"mean": f"{method.label} at the mean", "averaged": f"{method.label}, {run.evaluate.samples} samples"}
    if not method.averages:
        labels = {"mean": method.label}
    strange = {name.removeprefix("digits-").replace("-", " "): name for name in run.data.ood}
    return {
        label: Answers(
            found["test"][kind].log_probs, {words: found[name][kind].log_probs for words, name in strange.items()}
        )
        for kind, label in labels.items()
    }


def score(answers: Answers, targets: Tensor) -> Scores:
    """Accuracy in per cent, NLL, ECE, Brier score, and the AUROC in per cent of telling each strange set apart."""
    confidence = metrics.max_log_prob(answers.test)
    return {
        "accuracy %": 100.0 * metrics.accuracy(answers.test, targets),
        "NLL": metrics.nll(answers.test, targets),
        "ECE": metrics.ece(answers.test, targets),
        "Brier": metrics.brier(answers.test, targets),
        **{
            f"vs. {name} %": 100.0 * metrics.auroc(confidence, metrics.max_log_prob(strange))
            for name, strange in answers.strange.items()
        },
    }


def demo_run(method: str, seed: int, steps: int | None = None) -> Run:
    """The run of one method and seed: the recipe's, with a convolutional network, validation data and strange images.

    >>> demo_run("sgd", 3).data.ood
    ('digits-upside-down', 'digits-noise')
    >>> demo_run("auto", 3).optim.lr  # by the weights
    """
    run = digits(named(method).name, seed=seed)
    run = replace(
        run,
        recipe=f"demo-{run.optim.name}",
        model=Model("small_cnn"),
        data=replace(run.data, validation=VALIDATION, ood=STRANGE),
        optim=BASELINES.get(method, named(method).Settings(name=run.optim.name)),
        train=replace(run.train, eval_every=600),
    )
    return run if steps is None else replace(run, train=replace(run.train, steps=steps))


def folder_of(out: Path, run: Run) -> Path:
    """Where a run of the demo is."""
    return out / "runs" / f"{run.recipe}-{run.train.steps}-seed{run.seed}"


def compare(
    seeds: int, out: Path, *, steps: int | None = None, say: Say = lambda words: None
) -> dict[str, list[Answers]]:
    """Row of the table -> answers of each seed: trained now, or taken from the folder where they are there already."""
    if seeds < 1:
        raise ValueError(f"seeds={seeds} must be at least 1")
    rows: dict[str, list[Answers]] = {}
    for method in COMPARED:
        for seed in range(seeds):
            run = demo_run(method, seed, steps)
            job = Job(run, {}, folder_of(out, run))
            finish(job, progress=False)
            advise_run(job.out)
            for label, answers in ask(run, job.out).items():
                rows.setdefault(label, []).append(answers)
        say(f"{named(method).label}: {seeds} seed(s) trained")
    return rows


def sentences(scores: dict[str, list[Scores]]) -> list[str]:
    """One sentence for each result: which row is best, and where the last one, the average over samples, stands.

    >>> rows = {"AdamW": 0.09, "VAdamW at the mean": 0.08, "VAdamW, 64 samples": 0.05}
    >>> sentences({name: [{"NLL": value}] for name, value in rows.items()})[0]
    'NLL, the price of confident errors: VAdamW, 64 samples is best with 0.0500; VAdamW at the mean has 0.0800.'
    """
    ours, said = list(scores)[-1], []
    for column, (title, more) in RESULTS.items():
        if column in next(iter(scores.values()))[0]:
            means = {name: statistics.fmean(run[column] for run in runs) for name, runs in scores.items()}
            order = sorted(means, key=lambda name: means[name], reverse=more)
            other = order[1] if order[0] == ours else ours
            first, second = (f"{means[name]:.{_digits(column)}f}" for name in (order[0], other))
            said.append(f"{title}: {order[0]} is best with {first}; {other} has {second}.")
    return said


def main(seeds: int = 5, out: Path = Path("runs/demo"), steps: int | None = None) -> int:
    """Compare, print the table, and write the page.

    Args:
        seeds: runs of each method.
        out: folder for the runs and the page.
        steps: training steps; those of the recipe unless given.
    """
    started = time.perf_counter()

    def say(words: str) -> None:
        print(f"{words} ({time.perf_counter() - started:.0f} s)", file=sys.stderr, flush=True)

    rows = compare(seeds, out, steps=steps, say=say)
    targets = data.load("digits", "test").targets
    scores = {name: [score(one, targets) for one in answers] for name, answers in rows.items()}
    columns = list(next(iter(scores.values()))[0])
    print(f"\n{'797 test images':18}" + "".join(f"{name:>19}" for name in columns))
    for name, runs in scores.items():
        print(f"{name:18}" + "".join(f"{_cell([run[column] for run in runs], column):>19}" for column in columns))
    print(f"\nmean and standard deviation over {seeds} seed(s); vs.: AUROC of telling strange images by confidence\n")
    print("\n".join(sentences(scores)))
    runs = [demo_run(method, seed, steps) for method in reversed(COMPARED) for seed in range(seeds)]
    page = write_report([folder_of(out, run) for run in runs], out, title="AdamW, SGD and VAdamW on handwritten digits")
    print(f"the page: {page.resolve().as_uri()}")
    return 0


def _cell(values: list[float], column: str) -> str:
    mean = f"{statistics.fmean(values):.{_digits(column)}f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.{_digits(column)}f}"


def _digits(column: str) -> int:
    return 2 if column.endswith("%") else 4


if __name__ == "__main__":
    sys.exit(main())
