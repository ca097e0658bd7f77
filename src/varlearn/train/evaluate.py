"""The two stages after training: what the posterior says about test and validation examples, and how good that is.

`predict_run` reads `config.json` and `posterior.safetensors` and writes `predictions.safetensors` and `analysis.json`;
`score_run` reads the predictions and writes `metrics.json`. Either can be repeated alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from varlearn import posterior
from varlearn.files.atomic import writing
from varlearn.files.checked_json import write_json
from varlearn.files.formats import FileFormatError
from varlearn.posterior import DiagGaussian, KroneckerGaussian, LowRankGaussian, Mixture, Point
from varlearn.posterior.binding import write_into
from varlearn.posterior.discrete import components
from varlearn.prediction import (
    AtMean,
    SamplerMixture,
    load_predictions,
    predict,
    predict_regression,
    predict_tokens,
    save_predictions,
    score,
    score_ood,
)
from varlearn.prediction.predictions_file import AnyPredictions
from varlearn.train.analysis import Predicted, analysis
from varlearn.train.best_epoch import best_scores
from varlearn.train.build import build_batches, build_examples, build_method, build_model, build_ood
from varlearn.train.config import Run
from varlearn.train.run_errors import RunFolderError
from varlearn.train.run_folder import RunFolder
from varlearn.train.tasks import Task, task_of
from varlearn.types import Posterior, Sampler

AT_MEAN, AVERAGED = "mean", "averaged"
TEST, VALIDATION = "test", "validation"

Saved = DiagGaussian | LowRankGaussian | KroneckerGaussian | Mixture | Point


def predict_run(
    out: str | Path,
    *,
    samples: int | None = None,
    analyse: bool = True,
    progress: bool | None = None,
    device: torch.device | str | None = None,
    root: Path | None = None,
) -> Path:
    """Predict the test examples of a run, its validation examples and its `data.ood` sets, at the mean and averaged.

    Args:
        out: the run's folder.
        samples: of the posterior; None for the run's `evaluate.samples`.
        analyse: also write `analysis.json`, which pages need and scores do not; it takes further predictions.
        progress: show a bar; None: in a terminal.
        device: where to compute; None for a GPU if there is one.
        root: where the data are; None for the usual places.

    Returns:
        The path of `predictions.safetensors`.

    >>> import tempfile
    >>> from varlearn.train import Data, Model, Optim, Run, Train, fit
    >>> data, optim = Data("digits", augment=False), Optim("sgd", lr=0.05)
    >>> run = Run(model=Model("mlp", hidden=()), data=data, optim=optim, train=Train(epochs=1))
    >>> with tempfile.TemporaryDirectory() as out:
    ...     _ = fit(run, out, progress=False)
    ...     _ = predict_run(out, progress=False)
    ...     scores = score_run(out)
    ...     load_run_predictions(out)["test"]["mean"].log_probs.shape
    torch.Size([797, 10])
    >>> scores["mean"]["accuracy"] > 0.7, scores["mean"] == scores["averaged"]  # a point has nothing to average
    (True, True)
    """
    folder = RunFolder(Path(out))
    run = folder.read_run()
    if not folder.posterior.exists():
        raise RunFolderError(f"{folder.posterior} is missing: the run is not finished; train or resume it first")
    device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    samples = run.evaluate.samples if samples is None else samples
    test = build_examples(run, TEST, root)
    task = task_of(test)
    with torch.random.fork_rng(devices=[]):  # the weights drawn here are all replaced
        model = build_model(run, test).to(device)
    learned = posterior.load(folder.posterior, model, device)
    members = folder.members
    sources = sources_of(run, model, learned, members)
    sets = {TEST: test} | {name: build_ood(run, name, test, root) for name in run.data.ood}
    if run.data.validation:
        sets[VALIDATION] = build_examples(run, VALIDATION, root)
    predictions: dict[str, AnyPredictions] = {}
    for set_name, examples in sets.items():
        batches = build_batches(run, examples, train=False)
        found: AnyPredictions | None = None
        for source, distribution in sources.items():
            if found is None or not isinstance(distribution, Point):  # a point has nothing to average
                found = predict_task(task, model, distribution, batches, samples, run.seed, progress)
            predictions[f"{set_name}/{source}"] = found
    with writing(folder.predictions):
        save_predictions(predictions, folder.predictions)

    if not analyse:
        return folder.predictions

    def by(model: nn.Module, tempered: Posterior, *arguments: Any) -> AnyPredictions:
        return predict_task(task, model, predictor_of(run, tempered, members), *arguments, progress=False)

    found_all = Predicted(run, model, learned, sets, predictions)
    write_json(folder.analysis, finite(analysis(found_all, by, root)))
    return folder.predictions


def sources_of(
    run: Run, model: nn.Module, learned: Saved, members: Sequence[Run] = ()
) -> dict[str, Posterior | Sampler]:
    """What the predictions of a run come from: "mean", its posterior's mean, and "averaged", what is averaged over.

    Args:
        run: its method decides.
        model: gets the mean as its weights, which samplers start from.
        learned: the posterior that the run saved.
        members: of an ensemble, the run of each component.

    >>> net = nn.Linear(1, 1, bias=False)
    >>> sources_of(Run(), net, Point({"weight": torch.ones(1, 1)}))["mean"]
    Point over 1 weights in 1 tensors
    >>> net.weight.item()
    1.0
    """
    write_into(model, {**(learned.fixed or {}), **learned.mean})
    return {AT_MEAN: learned.at_mean(), AVERAGED: predictor_of(run, learned, members)}


def predictor_of(run: Run, learned: Posterior, members: Sequence[Run] = ()) -> Posterior | Sampler:
    """What a run averages over: what its method says, of an ensemble what the members' methods say.

    Args:
        run: its method decides.
        learned: the posterior that the run saved.
        members: of an ensemble, the run of each component.

    >>> point = Point({"weight": torch.ones(1, 1)})
    >>> predictor_of(Run(), Mixture([point, point]), [Run(), Run()])
    Mixture of 2 (Point) over 1 weights in 1 tensors
    """
    if not members:
        return build_method(run).predictor(learned)
    parts = components(learned)
    found = [build_method(member).predictor(part) for member, (_, part) in zip(members, parts, strict=True)]
    if all(one is part for one, (_, part) in zip(found, parts, strict=True)):
        return learned
    own = [
        one if one is part else AtMean(part, cast(Sampler, one)) for one, (_, part) in zip(found, parts, strict=True)
    ]
    return SamplerMixture(own, [weight for weight, _ in parts])


def load_run_predictions(out: str | Path) -> dict[str, dict[str, Any]]:
    """The predictions that `predict_run` wrote: by set ("test", "validation" and others), then "mean" or "averaged"."""
    folder = RunFolder(Path(out))
    if not folder.predictions.exists():
        raise RunFolderError(f"{folder.predictions} is missing; predict first")
    found: dict[str, dict[str, Any]] = {}
    try:
        predictions = load_predictions(folder.predictions)
    except FileFormatError as error:
        raise RunFolderError(f"{error}, or predict again") from error
    for name, one in predictions.items() if isinstance(predictions, dict) else ():
        examples, _, source = name.rpartition("/")
        found.setdefault(examples, {})[source] = one
    if set(found.get(TEST, ())) != {AT_MEAN, AVERAGED}:
        raise RunFolderError(f"{folder.predictions} has no predictions of a run's test set; predict again")
    return found


def score_run(out: str | Path) -> dict[str, Any]:
    """Score the predictions of a run, write `metrics.json`, and return what it holds. See also `advise_run`.

    The result has "mean" and "averaged", each with the scores of the task on the test set, and for out-of-domain sets
    "ood", by name. A run with validation data also has "validation", with "mean" and "averaged" on these, and the
    "temperature" of the posterior, which was fitted to them. Where the scored split is a dev set, as GLUE's are,
    "best_epoch" has the best value of each score over the evaluations during training, at the mean: chosen on the data
    that are scored, as is usual for GLUE.
    """
    folder = RunFolder(Path(out))
    predictions = load_run_predictions(out)
    test, validation = predictions.pop(TEST), predictions.pop(VALIDATION, None)
    scores: dict[str, Any] = {}
    for source, found in test.items():
        scores[source] = score(found)
        if predictions:
            scores[source]["ood"] = {name: score_ood(found, other[source]) for name, other in predictions.items()}
    if validation is not None:
        scores[VALIDATION] = {source: score(found) for source, found in validation.items()}
        scores["temperature"] = getattr(posterior.load(folder.posterior), "temperature", None)
    if folder.read_run().data.test != TEST and (best := best_scores(folder.log)):
        scores["best_epoch"] = best
    write_json(folder.metrics, finite(scores))
    return scores


def predict_task(
    task: Task,
    model: nn.Module,
    source: Posterior | Sampler,
    batches: Iterable[Any],
    samples: int,
    seed: int,
    progress: bool | None = None,
) -> AnyPredictions:
    """Predict by the function of the task: `predict`, `predict_tokens` or `predict_regression`.

    >>> net, batch = nn.Linear(1, 2, bias=False), (torch.ones(1, 1), torch.zeros(1, dtype=torch.long))
    >>> point = Point({"weight": torch.zeros(2, 1)})
    >>> predict_task("classification", net, point, [batch], samples=1, seed=0).log_probs.exp()
    tensor([[0.5000, 0.5000]])
    """
    match task:
        case "classification":
            return predict(model, source, batches, samples, seed, progress=progress)
        case "language":
            return predict_tokens(model, source, batches, samples, seed, progress=progress)
        case "regression":
            return predict_regression(model, source, batches, samples, seed, progress=progress)


def finite(value: Any) -> Any:
    """The same with NaN and infinity as strings, which JSON cannot hold as numbers.

    >>> finite({"nll": float("inf"), "names": ["a"]})
    {'nll': 'inf', 'names': ['a']}
    """
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    return value
