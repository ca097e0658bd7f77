"""Predictions of a trained run for inputs from a user's file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import torch

from varlearn import data, posterior
from varlearn.data.examples import Examples
from varlearn.data.input_files import read_inputs
from varlearn.data.text_sets import Texts, tokenized
from varlearn.prediction import Predictions, RegressionPredictions
from varlearn.train.build import build_batches, build_examples, build_model
from varlearn.train.config import Run
from varlearn.train.evaluate import AVERAGED, predict_task, sources_of
from varlearn.train.pretrained_folder import pretrained_folder
from varlearn.train.run_errors import RunFolderError
from varlearn.train.run_folder import RunFolder
from varlearn.train.tasks import task_of


class PredictedInputs(NamedTuple):
    """A table of predictions, one row per input."""

    columns: list[str]
    """For classes "input", "class", "probability", "entropy", "disagreement", then the probability of each class; for
    values "input", "mean", "std" and "std of the weights"."""
    rows: list[list[str | float]]
    """Entropy and disagreement (mutual information) in nats; values in the units of the data set."""


def predict_inputs(
    out: str | Path,
    path: str | Path,
    *,
    samples: int | None = None,
    device: torch.device | str | None = None,
    progress: bool | None = None,
    root: Path | None = None,
) -> PredictedInputs:
    """Predict inputs from a file with the posterior of a run.

    Args:
        out: the run's folder.
        path: of the inputs; see `varlearn.data.input_files.read_inputs`.
        samples: of the posterior; None for the run's own number.
        device: where to compute; None for a GPU if there is one.
        progress: show a bar; None: in a terminal.
        root: where the run's data are, whose normalisation and vocabulary are used.
    """
    folder = RunFolder(Path(out))
    run = folder.read_run()
    if not folder.posterior.exists():
        raise RunFolderError(f"{folder.posterior} is missing: the run is not finished; train or resume it first")
    device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    known = build_examples(run, "test", root)
    inputs, names = read_inputs(Path(path), known, lambda texts: _tokenized(run, texts, root))
    with torch.random.fork_rng(devices=[]):
        model = build_model(run, known).to(device)
    learned = posterior.load(folder.posterior, model, device)
    source = sources_of(run, model, learned, folder.members)[AVERAGED]
    batches = build_batches(run, inputs, train=False)
    found = predict_task(
        task_of(known), model, source, batches, samples or run.evaluate.samples, run.seed, progress=progress
    )
    if isinstance(found, Predictions):
        return _classes(found, names, known)
    assert isinstance(found, RegressionPredictions)
    return _values(found, names, known)


def _tokenized(run: Run, texts: Texts, root: Path | None) -> Examples:
    """The texts as tokens of the run's vocabulary, which comes from its training split."""

    def source(split: str, root: Path | None) -> Texts:
        return data.texts(run.data.name, split, root) if split == "train" else texts

    folder = pretrained_folder(run.model.path) if run.data.tokens == "model" else None
    return tokenized(source, "own", root, tokens=run.data.tokens, context=run.data.context, pretrained=folder)


def _classes(found: Predictions, names: list[str], known: Examples) -> PredictedInputs:
    probabilities = found.log_probs.double().exp()
    best = probabilities.argmax(1).tolist()
    doubts = zip(found.predictive_entropy.tolist(), found.mutual_information.tolist(), strict=True)
    rows: list[list[Any]] = []
    for name, chosen, row, (entropy, disagreement) in zip(names, best, probabilities.tolist(), doubts, strict=True):
        rows.append([name, known.classes[chosen], row[chosen], entropy, disagreement, *row])
    columns = ["input", "class", "probability", "entropy", "disagreement", *(f"p({name})" for name in known.classes)]
    return PredictedInputs(columns, rows)


def _values(found: RegressionPredictions, names: list[str], known: Examples) -> PredictedInputs:
    scale, shift = known.target_std, known.target_mean
    numbers = torch.stack([found.mean * scale + shift, found.std * scale, found.epistemic.sqrt() * scale])
    rows: list[list[Any]] = [[name, *row] for name, row in zip(names, numbers.flatten(1).T.tolist(), strict=True)]
    return PredictedInputs(["input", "mean", "std", "std of the weights"], rows)
