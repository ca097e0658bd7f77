"""`varlearn demo`: AdamW, SGD and IVON on scikit-learn's handwritten digits, in two minutes on two cores.

1,000 training images, 797 test images, a perceptron with two hidden layers, 1,200 steps of 50 images, cosine schedule.
AdamW and SGD get the best of five learning rates; IVON takes `presets.auto` and the best of four. Besides the test set,
each method is shown images that are no digits as it knows them: the test images upside down, and noise.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from varlearn import data, metrics, posterior
from varlearn.data import Batches, Examples
from varlearn.methods import named
from varlearn.prediction import predict
from varlearn.recipes import digits
from varlearn.recipes.jobs import Job, finish
from varlearn.train import Run, RunFolder
from varlearn.train.build import build_model
from varlearn.train.evaluate import sources_of

COMPARED = ("adamw", "sgd", "ivon")
Scores = dict[str, float]
Say = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Answers:
    """What one model of one seed says: log-probabilities on the test set, and on strange images by name."""

    test: Tensor
    strange: dict[str, Tensor]


def strange_images(test: Examples) -> dict[str, Examples]:
    """The test images upside down, and as many images of noise with the same histogram of pixels.

    >>> sorted(strange_images(data.load("digits", "test")))
    ['noise', 'upside down']
    """
    images = test.inputs
    assert isinstance(images, Tensor)
    order = torch.randperm(images.numel(), generator=torch.Generator().manual_seed(0))
    noise = images.flatten()[order].view_as(images)
    return {"upside down": replace(test, inputs=images.flip(2)), "noise": replace(test, inputs=noise)}


def ask(run: Run, out: Path) -> dict[str, Answers]:
    """What a trained run says, by label of the method: at the mean and averaged, where the two differ."""
    test = data.load("digits", "test")
    with torch.random.fork_rng(devices=[]):
        model = build_model(run, test)
    learned = posterior.load(RunFolder(out).posterior, model)
    method, found = named(run.optim.name), sources_of(run, model, learned)
    labels = {"mean": f"{method.label} at the mean", "averaged": f"{method.label}, {run.evaluate.samples} samples"}
    if not method.averages:
        labels = {"mean": method.label}
    sources = {label: found[kind] for kind, label in labels.items()}
    sets = {"test": test, **strange_images(test)}
    answers = {}
    for label, source in sources.items():
        found = {
            place: predict(
                model, source, _batches(run, images), run.evaluate.samples, run.seed, progress=False
            ).log_probs
            for place, images in sets.items()
        }
        answers[label] = Answers(found.pop("test"), found)
    return answers


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


def compare(
    seeds: int, out: Path, *, steps: int | None = None, say: Say = lambda words: None
) -> dict[str, list[Answers]]:
    """Row of the table -> answers of each seed: trained now, or taken from the folder where they are there already."""
    if seeds < 1:
        raise ValueError(f"seeds={seeds} must be at least 1")
    rows: dict[str, list[Answers]] = {}
    for method in COMPARED:
        for seed in range(seeds):
            run = digits(method, seed=seed)
            if steps is not None:
                run = replace(run, train=replace(run.train, steps=steps))
            job = Job(run, {}, out / "runs" / f"{run.recipe}-{run.train.steps}-seed{seed}")
            finish(job, progress=False)
            for label, answers in ask(run, job.out).items():
                rows.setdefault(label, []).append(answers)
        say(f"{named(method).label}: {seeds} seed(s) trained")
    return rows


def draw(rows: dict[str, list[Answers]], out: Path) -> list[Path]:
    """Figures into a folder: reliability over all seeds; of the first seed entropies, most and least certain images."""
    from varlearn.report import entropies, gallery, reliability, save

    test = data.load("digits", "test")
    curves = {
        name: metrics.merge_reliability([metrics.reliability_curve(one.test, test.targets) for one in answers])
        for name, answers in rows.items()
    }
    paths = [*save(reliability(curves), out / "reliability")]
    for name, answers in rows.items():
        strange = {place: metrics.entropy_per_example(found) for place, found in answers[0].strange.items()}
        made = entropies(metrics.entropy_per_example(answers[0].test), strange, name, math.log(10))
        paths += save(made, out / f"entropy-{''.join(letter for letter in name.lower() if letter.isalnum())}")
    averaged = list(rows.values())[-1][0].test
    order = metrics.entropy_per_example(averaged).argsort()
    certain = {
        f"{name}, averaged over IVON's posterior": _captioned(test, averaged, chosen)
        for name, chosen in (("most certain", order[:10]), ("least certain", order.flip(0)[:10]))
    }
    return [*paths, *save(gallery(certain), out / "certainty")]


def main(seeds: int = 5, out: Path = Path("runs/demo"), steps: int | None = None) -> int:
    """Compare, print the table, and write the figures if matplotlib is there.

    Args:
        seeds: runs of each method.
        out: folder for runs and figures.
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
    try:
        paths = draw(rows, out)
    except ModuleNotFoundError as error:
        if error.name not in ("matplotlib", "cycler"):
            raise
        print("no figures: they need matplotlib; pip install 'varlearn[plot]'")
    else:
        print(f"figures: {', '.join(str(path) for path in paths if path.suffix == '.png')}")
    return 0


def _batches(run: Run, examples: Examples) -> Batches:
    return Batches(examples, run.data.eval_batch_size, seed=run.seed, shuffle=False, augment=False)


def _captioned(test: Examples, log_probs: Tensor, chosen: Tensor) -> tuple[Tensor, Sequence[str]]:
    assert isinstance(test.inputs, Tensor)
    captions = []
    for index in chosen.tolist():
        confidence, guess = log_probs[index].exp().max(0)
        truth = test.targets[index].item()
        said = f"{guess.item()}, {100 * confidence.item():.0f}%"
        captions.append(said if guess.item() == truth else f"{said} (is {truth})")
    return 1.0 - test.inputs[chosen].float() / 255.0, captions


def _cell(values: list[float], column: str) -> str:
    digits = 2 if column.endswith("%") else 4
    mean = f"{statistics.fmean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.{digits}f}"


if __name__ == "__main__":
    sys.exit(main())
