"""The results of one trained model: from a run's folder, from predictions, or put together by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from varlearn.advice import Finding
from varlearn.files.checked_json import Lines, read_json, read_json_lines
from varlearn.files.formats import CorruptFileError, entry, rebuilding
from varlearn.files.metrics_file import read_metrics
from varlearn.methods import METHODS
from varlearn.methods.ensemble_label import label_of_members
from varlearn.prediction import Predictions, load_predictions, score, score_ood
from varlearn.prediction.predictions_file import AnyPredictions

KINDS = ("averaged", "mean")
KNOWN_SETS = ("test", "validation")


@dataclass(frozen=True, eq=False)
class RunResults:
    """What is known about one trained model. Everything but the name may be left out, and its figures with it.

    Attributes:
        name: of the run.
        method: name of the method, e.g. "ivon"; of another origin, how tables write it.
        predictions: "SET/KIND" -> predictions. Sets are "test", "validation" and data out of the domain by name; kinds
            are "mean" and "averaged".
        metrics: as in `metrics.json`; computed from the predictions where it is empty.
        config: as in `config.json`.
        env: as in `env.json`.
        log: the undamaged records of `log.jsonl`.
        damaged_lines: numbers of the others, counted from 1.
        timing: the records of `timing.jsonl`.
        analysis: as in `analysis.json`, see `varlearn.train.analysis`.
        facts: what the advice is based on, as in `advice.json`.
        findings: the advice itself.
        made_of: names of the members' methods, of an ensemble.
    """

    name: str
    method: str = ""
    predictions: Mapping[str, AnyPredictions] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, Any] = field(default_factory=dict)
    log: list[dict[str, Any]] = field(default_factory=list)
    damaged_lines: list[int] = field(default_factory=list)
    timing: list[dict[str, Any]] = field(default_factory=list)
    analysis: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    made_of: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The method as tables write it; its name where this version does not know it."""
        if self.made_of:
            return label_of_members(self.made_of)
        return METHODS[self.method].label if self.method in METHODS else self.method or self.name

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of prediction that differ: a point has its mean alone."""
        found = tuple(kind for kind in KINDS if kind in self.metrics or f"test/{kind}" in self.predictions)
        if self.made_of:
            points = all(name in METHODS and not METHODS[name].averages for name in self.made_of)
            return ("averaged",) if points and "averaged" in found else found
        if self.method in METHODS and not METHODS[self.method].averages:
            return ("mean",) if "mean" in found else found
        return found

    @property
    def outside(self) -> tuple[str, ...]:
        """The data sets out of the domain that were predicted."""
        names = dict.fromkeys(name.rpartition("/")[0] for name in self.predictions)
        return tuple(name for name in names if name not in KNOWN_SETS)

    def classified(self, kind: str, examples: str = "test") -> tuple[Tensor, Tensor | None] | None:
        """Log-probabilities (N, C) and targets (N,) of a classifier; None of another run, or before predicting."""
        found = self.predictions.get(f"{examples}/{kind}")
        if not isinstance(found, Predictions) or found.log_probs.dim() != 2 or found.log_probs.shape[1] < 2:
            return None
        return found.log_probs, found.targets


@runtime_checkable
class HasResults(Protocol):
    """Something that can be reported, e.g. what `varlearn.fit` returns."""

    def results(self) -> RunResults:
        """Its results."""
        ...


Source = str | Path | RunResults | HasResults | AnyPredictions


def results_of(source: Source, name: str = "") -> RunResults:
    """The results that something stands for.

    Args:
        source: the folder of a run; results; predictions; or an object with a method `results()`.
        name: of the method, for predictions, which do not know it.

    >>> import torch
    >>> p = Predictions(torch.tensor([[0.5, 0.5]]).log(), torch.tensor([0]), torch.zeros(1), torch.ones(1))
    >>> round(results_of(p, "mine").metrics["mean"]["nll"], 4)
    0.6931
    """
    if isinstance(source, (str, Path)):
        found = read_run(Path(source))
    elif isinstance(source, RunResults):
        found = source
    elif isinstance(source, HasResults):
        found = source.results()
    elif isinstance(source, AnyPredictions):
        kind = "mean" if len(source.sample_weights) == 1 else "averaged"
        found = RunResults(name or "predictions", name or "predictions", {f"test/{kind}": source})
    else:
        raise TypeError(
            f"a {type(source).__name__} cannot be reported; give the folder of a run, predictions, RunResults, or an "
            "object with results()"
        )
    return found if found.metrics else replace(found, metrics=_scores(found))


def read_run(path: Path) -> RunResults:
    """Read the folder of a run.

    Raises:
        ValueError: if there is no run, or one of its files cannot be read.
    """
    if not (path / "config.json").is_file():
        raise ValueError(f"{path} holds no run: config.json is missing; give the folder that varlearn train wrote to")
    predictions = path / "predictions.safetensors"
    found = load_predictions(predictions) if predictions.exists() else {}
    config = _sections(path / "config.json")
    lines, advice = path / "log.jsonl", _json(path / "advice.json")
    log = _lines(lines)
    with rebuilding(path / "advice.json", "advice about a run"):
        findings = tuple(Finding(**one) for one in advice.get("findings", ()))
    return RunResults(
        name=path.resolve().name,
        method=str(config.get("optim", {}).get("name", "")),
        predictions=found if isinstance(found, dict) else {},
        metrics=_json(path / "metrics.json", read_metrics),
        config=config,
        env=_json(path / "env.json"),
        log=[record for record in log.records if entry(lines, record, "step", (int, float), "a record") is not None],
        damaged_lines=log.damaged,
        timing=_lines(path / "timing.jsonl").records,
        analysis=_json(path / "analysis.json"),
        facts=advice.get("facts", {}),
        findings=findings,
        made_of=_made_of(path / "ensemble.json"),
    )


def _scores(found: RunResults) -> dict[str, Any]:
    """What `metrics.json` would hold."""
    scores: dict[str, Any] = {}
    for kind in KINDS:
        test = found.predictions.get(f"test/{kind}")
        if test is None or test.targets is None:
            continue
        scores[kind] = score(test)
        others = {name: found.predictions.get(f"{name}/{kind}") for name in found.outside}
        away = {name: other for name, other in others.items() if isinstance(other, Predictions)}
        if away and isinstance(test, Predictions):
            scores[kind]["ood"] = {name: score_ood(test, other) for name, other in away.items()}
    return scores


def _made_of(path: Path) -> tuple[str, ...]:
    """The methods of an ensemble's members; none of another run."""
    members = _json(path).get("members", ())
    with rebuilding(path, "an ensemble"):
        return tuple(str(one["config"]["optim"]["name"]) for one in members)


def _lines(path: Path) -> Lines:
    return read_json_lines(path) if path.exists() else Lines([], [])


def _sections(path: Path) -> dict[str, Any]:
    """A configuration, perhaps of a later version: its sections must be objects, whatever is in them."""
    config = _json(path)
    for name in ("optim", "model", "data", "train", "evaluate"):
        if name in config:
            entry(path, config, name, dict, "the configuration")
    return config


def _json(path: Path, read: Callable[[Path], dict[str, Any]] = read_json) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        return read(path)
    except CorruptFileError as error:
        raise CorruptFileError(f"{error}; its stage writes it again") from error
