"""Advice about the run in a folder: the facts that its files hold, and the findings that follow."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from varlearn import metrics, posterior
from varlearn.advice import Finding, RunFacts, findings
from varlearn.files.checked_json import read_json_lines, write_json
from varlearn.prediction import Predictions, RegressionPredictions
from varlearn.prediction.predictions_file import AnyPredictions
from varlearn.train.build import build_method
from varlearn.train.config import Run
from varlearn.train.evaluate import AT_MEAN, AVERAGED, TEST, VALIDATION, finite, load_run_predictions
from varlearn.train.run_folder import RunFolder


def advise_run(out: str | Path) -> tuple[Finding, ...]:
    """Judge the run in a folder, write `advice.json`, and return the findings.

    Args:
        out: folder of a run; what has not been logged or predicted yet is not judged.
    """
    folder = RunFolder(Path(out))
    facts = facts_of_run(out)
    found = findings(facts)
    known = {name: value for name, value in asdict(facts).items() if value is not None}
    write_json(folder.advice, finite({"facts": known, "findings": [asdict(finding) for finding in found]}))
    return found


def facts_of_run(out: str | Path) -> RunFacts:
    """The facts that the files of a run hold: its settings, its log, its posterior and its predictions."""
    folder = RunFolder(Path(out))
    run = folder.read_run()
    values = log_facts(read_json_lines(folder.log).records if folder.log.exists() else [], run)
    averages = build_method(run).averages
    if averages and folder.posterior.exists():
        learned = posterior.load(folder.posterior)
        values["nonfinite_weights"] = sum(int((~value.isfinite()).sum()) for value in learned.mean.values())
        if run.data.validation:
            values["temperature"] = getattr(learned, "temperature", None)
    if folder.predictions.exists():
        values |= prediction_facts(load_run_predictions(out), averages)
    return known_facts(values)


def known_facts(values: Mapping[str, Any]) -> RunFacts:
    """The facts among these values; what advice does not know is left out."""
    known = {item.name for item in fields(RunFacts)}
    return RunFacts(**{name: value for name, value in values.items() if name in known})


def log_facts(records: Iterable[Mapping[str, Any]], run: Run) -> dict[str, Any]:
    """What the records of a log say: losses, learning rates, and the optimizer's statistics."""
    steps = [record for record in records if "loss" in record]
    if not steps:
        return {}
    last, rates = steps[-1], [float(record["lr"]) for record in steps]
    facts: dict[str, Any] = dict(steps[0].get("facts", {}))
    facts |= {
        "step": last["step"],
        "lr": rates[-1],
        "lr_peak": max(rates),
        "loss_first": float(steps[0]["loss"]),
        "loss_last": float(last["loss"]),
        "loss_peak": max(float(record["loss"]) for record in steps),
        "skipped_steps": last.get("skipped"),
    }
    return facts | _diagnosed(last.get(run.optim.name, {}), run, facts.get("n"))


def _diagnosed(record: dict[str, Any], run: Run, n: int | None) -> dict[str, Any]:
    """Facts of the optimizer's diagnostics; of several parameter groups, the one with most weights."""
    groups = [group for group in record.values() if isinstance(group, dict)] or [record]
    largest = max(groups, key=lambda group: group.get("params", 0))
    if "params" not in largest:
        return {}
    facts = {name: largest.get(name) for name in ("params", "ess", "hess_mean", "hess_moved", "noise_ratio")}
    if "hess_mean" in largest:
        optim = run.optim
        facts |= {"hess_init": optim.hess_init, "weight_decay": optim.weight_decay, "beta2": optim.beta2}
        facts["ess"] = n if optim.ess is None else optim.ess
    return {name: float(value) if isinstance(value, str) else value for name, value in facts.items()}


def prediction_facts(predictions: dict[str, dict[str, Any]], averages: bool) -> dict[str, Any]:
    """What predictions say, by set ("test", and "validation" if there is one) and then "mean" or "averaged"."""
    test, validation = predictions[TEST], predictions.get(VALIDATION)
    facts: dict[str, Any] = {}
    if validation is not None:
        here, there = _nll(validation[AVERAGED]), _nll(test[AVERAGED])
        error = math.hypot(_standard_error(here), _standard_error(there))
        facts |= {"nll_validation": here.mean().item(), "nll_test": there.mean().item(), "nll_split_error": error}
    if averages:
        chosen = validation or test
        mean, averaged = _nll(chosen[AT_MEAN]), _nll(chosen[AVERAGED])
        facts |= {"nll_mean": mean.mean().item(), "nll_averaged": averaged.mean().item()}
        facts["samples"] = len(chosen[AVERAGED].sample_weights)
        facts["nll_gap_error"] = _standard_error(averaged - mean)
        facts["disagreement"] = _disagreement(chosen[AVERAGED])
    if isinstance(found := test[AVERAGED], RegressionPredictions):
        facts["noise_variance"] = found.aleatoric.mean().item()
        if found.targets is not None:
            facts["squared_error"] = (found.mean.flatten() - found.targets.flatten()).square().mean().item()
    return facts


def _nll(found: AnyPredictions) -> Tensor:
    """NLL of each example or token."""
    if isinstance(found, Predictions):
        assert found.targets is not None
        return metrics.nll_per_example(found.log_probs, found.targets)
    terms = found.log_density if isinstance(found, RegressionPredictions) else found.log_probs
    return torch.full((1,), math.nan) if terms is None else -terms.double()


def _standard_error(values: Tensor) -> float:
    return values.std().item() / math.sqrt(len(values)) if len(values) > 1 else math.inf


def _disagreement(found: AnyPredictions) -> float | None:
    """Mutual information between prediction and weights, mean over examples; unknown for language models."""
    if isinstance(found, Predictions):
        return found.mutual_information.double().mean().item()
    if isinstance(found, RegressionPredictions):
        ratio = found.variance.double() / found.aleatoric.double()
        return ratio.log().mean().item() / 2.0
    return None
