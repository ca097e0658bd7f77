"""`varlearn demo`: AdamW, SGD and IVON on scikit-learn's handwritten digits, in two minutes on two cores.

1,000 training images, 797 test images, a perceptron with two hidden layers, 1,200 steps of 50 images, cosine schedule.
AdamW and SGD get the best of five learning rates; IVON takes `presets.auto` and the best of four. Besides the test set,
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
from varlearn.methods import named
from varlearn.recipes import digits
from varlearn.recipes.jobs import Job, finish
from varlearn.report import write_report
from varlearn.train import Run, advise_run, load_run_predictions

COMPARED = ("adamw", "sgd", "ivon")
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
    """The run of one method and seed: the recipe's, which is also shown strange images.

    >>> demo_run("sgd", 3).data.ood
    ('digits-upside-down', 'digits-noise')
    """
    run = digits(method, seed=seed)
    run = replace(run, data=replace(run.data, ood=STRANGE))
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
    print(f"\n{'797 test images':16}" + "".join(f"{name:>19}" for name in columns))
    for name, runs in scores.items():
        print(f"{name:16}" + "".join(f"{_cell([run[column] for run in runs], column):>19}" for column in columns))
    print(f"\nmean and standard deviation over {seeds} seed(s); vs.: AUROC of telling strange images by confidence")
    runs = [demo_run(method, seed, steps) for method in reversed(COMPARED) for seed in range(seeds)]
    page = write_report([folder_of(out, run) for run in runs], out, title="AdamW, SGD and IVON on handwritten digits")
    print(f"the page: {page.resolve().as_uri()}")
    return 0


def _cell(values: list[float], column: str) -> str:
    digits = 2 if column.endswith("%") else 4
    mean = f"{statistics.fmean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.{digits}f}"


if __name__ == "__main__":
    sys.exit(main())
