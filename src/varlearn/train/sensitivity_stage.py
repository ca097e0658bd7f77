"""The stage after training that asks what each training example does: `sensitivity.safetensors` and a table of it."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from varlearn import posterior
from varlearn.data.examples import Examples
from varlearn.files import sealed
from varlearn.files.atomic import write_text, writing
from varlearn.files.formats import check_format
from varlearn.posterior import DiagGaussian
from varlearn.sensitivities import Sensitivity, SensitivityTracker, TokenSensitivity
from varlearn.sensitivities.example_count import with_ess
from varlearn.sensitivities.loo_estimates import Score
from varlearn.train import checkpoint
from varlearn.train.build import build_batches, build_examples, build_parts
from varlearn.train.config import Run
from varlearn.train.loo_measure import task_sensitivity
from varlearn.train.processes import Processes
from varlearn.train.run_errors import RunFolderError
from varlearn.train.run_folder import RunFolder
from varlearn.train.splits import training_numbers
from varlearn.train.training import Training

FORMAT, FORMAT_VERSION = "varlearn.sensitivity", 1
COLUMNS = ("score", "paper_score", "loss", "loo_loss")


class RunSensitivity(NamedTuple):
    """What `sensitivity.safetensors` holds."""

    values: dict[str, Tensor]
    """By name, one row per example: "ids", "score", "paper_score", "loss" and "loo_loss"; of classes also "labels",
    "prediction", "outputs", "loo_probs" and "loo_label_prob". With "accumulated_" before them the means over training,
    where it was measured."""
    about: dict[str, Any]
    """"score" (its name), "diagonal", "step", "epoch", "n", "classes" and "snapshot" (None: the result)."""


def sensitivity_run(
    out: str | Path,
    *,
    snapshot: int | None = None,
    score: Score = "probability",
    diagonal: bool = False,
    progress: bool | None = None,
    device: torch.device | str | None = None,
    root: Path | None = None,
) -> Path:
    """Compute the sensitivity of every training example of a run.

    IVON and VAdamW are read from `posterior.safetensors`. The variance of AdamW and SGD comes from the optimizer's
    state in the newest checkpoint.

    Args:
        out: the run's folder.
        snapshot: an epoch of `train.snapshots`, whose checkpoint is read instead.
        score: see `varlearn.sensitivity`; the paper's stands in the file besides.
        diagonal: the paper's variant for CIFAR-10.
        progress: show a bar; None: in a terminal.
        device: where to compute; None for a GPU if there is one.
        root: where the data are; None for the usual places.

    Returns:
        The path of `sensitivity.safetensors`; `sensitivity.csv` stands beside it.

    >>> import tempfile
    >>> from varlearn.train import Data, Model, Optim, Run, Train, fit
    >>> data, optim = Data("digits", augment=False, subset=50), Optim("sgd", lr=0.05)
    >>> run = Run(model=Model("mlp", hidden=()), data=data, optim=optim, train=Train(epochs=1))
    >>> with tempfile.TemporaryDirectory() as out:
    ...     _ = fit(run, out, progress=False)
    ...     _ = sensitivity_run(out, progress=False)
    ...     load_run_sensitivity(out).values["score"].shape
    torch.Size([50])
    """
    folder = RunFolder(Path(out))
    run = folder.read_run()
    place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    state_path = _state_path(folder, run, snapshot)
    examples = build_examples(run, "train", root)
    with torch.random.fork_rng(devices=[]):
        training = Training(build_parts(run, examples, Processes(0, 1, place)), Processes(0, 1, place))
    state = None if state_path is None else checkpoint.read(state_path)
    learned, step = _learned(folder, training, state)
    numbers = None
    if run.data.validation and examples.kind != "tokens":
        numbers = training_numbers(run, len(examples) + len(build_examples(run, "validation", root)), examples)
    batches = build_batches(run, examples, train=False, ids=True if numbers is None else numbers)
    settings: dict[str, Any] = {"score": score, "progress": progress, **({"diagonal": True} if diagonal else {})}
    found = task_sensitivity(
        training.facts.task, training.model, with_ess(learned, training.facts.n), batches, **settings
    )
    values = _values(found) | _accumulated(state or _newest(folder), found.ids)
    epoch = step * run.train.accumulate / len(training.parts.batches)
    about = {"score": score, "diagonal": diagonal, "step": step, "epoch": epoch, "n": training.facts.n}
    about["snapshot"] = snapshot
    with writing(folder.sensitivity):
        sealed.write(
            folder.sensitivity,
            {name: value.contiguous() for name, value in values.items()},
            {"format": FORMAT, "format_version": FORMAT_VERSION, **about, "classes": list(examples.classes)},
        )
    write_text(folder.sensitivity.with_suffix(".csv"), _table(values, examples))
    return folder.sensitivity


def load_run_sensitivity(out: str | Path) -> RunSensitivity:
    """What `sensitivity_run` wrote."""
    path = RunFolder(Path(out)).sensitivity
    if not path.exists():
        raise RunFolderError(f"{path} is missing; compute it first: varlearn sensitivity {out}")
    tensors, metadata = sealed.read(path)
    check_format(path, metadata, {FORMAT: (FORMAT_VERSION,)}, "varlearn sensitivity")
    return RunSensitivity(tensors, {key: value for key, value in metadata.items() if not key.startswith("format")})


def _state_path(folder: RunFolder, run: Run, snapshot: int | None) -> Path | None:
    """The checkpoint to read; None for the saved posterior."""
    if snapshot is not None:
        kept = folder.checkpoints.snapshots()
        if snapshot not in kept:
            has = f"it has {', '.join(map(str, kept))}" if kept else "it kept none; train with train.snapshots"
            raise RunFolderError(f"{folder.out} has no snapshot of epoch {snapshot}; {has}")
        return folder.checkpoints.snapshot(snapshot)
    if not folder.posterior.exists():
        raise RunFolderError(f"{folder.posterior} is missing: the run is not finished; train or resume it first")
    if isinstance(posterior.load(folder.posterior), DiagGaussian):
        return None
    best, newest = folder.checkpoints.best_by("loo"), folder.checkpoints.paths()
    if run.train.loo_patience is not None and best.exists():
        return best  # training may have gone back to it
    if not newest:
        raise RunFolderError(
            f"{folder.checkpoints.folder} holds no checkpoint, and the variance of optim.name={run.optim.name!r} comes "
            "from the optimizer's state in it; train again"
        )
    return newest[-1]


def _learned(folder: RunFolder, training: Training, state: dict[str, Any] | None) -> tuple[DiagGaussian, int]:
    """The Gaussian, and the step that it is of."""
    if state is not None:
        training.load_state_dict(state["training"])
        found = training.method.gaussian(training)
        if found is None:
            raise RunFolderError(
                f"optim.name={training.method.name!r} has no variance to compute sensitivities with; use another method"
            )
        return found, training.step
    found = posterior.load(folder.posterior, training.model)
    assert isinstance(found, DiagGaussian)
    lowest = folder.checkpoints.best_by("loo")
    stopped = training.parts.train.loo_patience is not None and lowest.exists()
    return found, checkpoint.read(lowest)["training"]["step"] if stopped else training.facts.steps


def _newest(folder: RunFolder) -> dict[str, Any] | None:
    paths = folder.checkpoints.paths()
    return checkpoint.read(paths[-1]) if paths else None


def _values(found: Sensitivity | TokenSensitivity) -> dict[str, Tensor]:
    values = {"ids": found.ids, **{name: getattr(found, name) for name in COLUMNS}}
    if isinstance(found, TokenSensitivity):
        return values
    if found.targets.is_floating_point():
        return values | {"outputs": found.outputs, "loo_outputs": found.loo_outputs, "targets": found.targets}
    classes = {"labels": found.targets, "prediction": found.outputs.argmax(1), "outputs": found.outputs}
    return values | classes | {"loo_label_prob": found.loo_label_probs, "loo_probs": found.loo_probs}


def _accumulated(state: dict[str, Any] | None, ids: Tensor) -> dict[str, Tensor]:
    """The means over training of the examples that were measured; NaN for the others. Nothing without `loo_every`."""
    if state is None or "loo" not in state or not len(state["loo"]["tracker"]["ids"]):
        return {}
    tracker = SensitivityTracker()
    tracker.load_state_dict(state["loo"]["tracker"])
    known = torch.isin(ids, tracker.ids)
    rows = torch.searchsorted(tracker.ids, ids[known])
    found = {"accumulated_updates": torch.zeros(len(ids), dtype=torch.int64)}
    found["accumulated_updates"][known] = tracker.counts[rows]
    for name in COLUMNS:
        found[f"accumulated_{name}"] = torch.full((len(ids),), torch.nan, dtype=torch.float64)
        found[f"accumulated_{name}"][known] = getattr(tracker, name)[rows]
    return found


def _table(values: dict[str, Tensor], examples: Examples) -> str:
    """A row per example: the columns that hold one number each, labels also by name."""
    columns = {name: value.tolist() for name, value in values.items() if value.dim() == 1}
    columns = {"id": columns.pop("ids"), **columns}
    if "labels" in columns and examples.classes:
        labels, predictions = columns.pop("labels"), columns.pop("prediction")
        names = [examples.classes[label] for label in labels]
        named = {"label": labels, "label_name": names, "prediction": predictions}
        columns = {"id": columns.pop("id"), **named, **columns}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue()
