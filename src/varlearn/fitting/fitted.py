"""The result of `varlearn.fit`: predictions, scores, a page, and a folder to load it from."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from varlearn import posterior as posteriors
from varlearn.advice import Finding, findings
from varlearn.core.notebook import html_table
from varlearn.files.atomic import writing
from varlearn.files.checked_json import read_json, write_json
from varlearn.files.formats import check_format, rebuilding
from varlearn.fitting.array_inputs import as_tensors, is_array, weights_dtype
from varlearn.fitting.first_look import Look
from varlearn.fitting.own_batches import OwnBatches
from varlearn.fitting.page_analysis import page_analysis
from varlearn.fitting.target_units import TargetUnits
from varlearn.fitting.task_predictor import Noise, TaskPredictor
from varlearn.methods import named
from varlearn.posterior.binding import write_into
from varlearn.prediction import load_predictions, save_predictions, score
from varlearn.prediction.loader_batches import Unpack
from varlearn.prediction.predictions_file import AnyPredictions
from varlearn.train.config import Run, from_json, to_json
from varlearn.train.evaluate import finite
from varlearn.train.log import JsonLines
from varlearn.train.run_advice import advise_run, known_facts, log_facts, prediction_facts
from varlearn.train.run_folder import RunFolder

FORMAT, FORMAT_VERSION = "varlearn.fitted", 1
_ROWS = 500  # inputs per forward pass where they come as one tensor
_AVERAGED, _AT_MEAN = "averaged", "mean"


@dataclass(frozen=True, eq=False, repr=False)
class Fitted:
    """A trained network with its posterior.

    Attributes:
        model: the network; it has the mean weights.
        posterior: over its weights, at the fitted temperature.
        predictor: task, units and noise of its predictions.
        run: the settings.
        records: what was measured while training.
        validation: predictions of the held-out data, "averaged" and at the "mean"; empty where there were none.
    """

    model: nn.Module
    posterior: Any
    predictor: TaskPredictor
    run: Run
    records: Sequence[Mapping[str, Any]]
    validation: Mapping[str, AnyPredictions]

    @classmethod
    def measured(
        cls,
        model: nn.Module,
        posterior: Any,
        predictor: TaskPredictor,
        run: Run,
        records: Sequence[Mapping[str, Any]],
        held_out: OwnBatches | None,
    ) -> Fitted:
        """The result, with its predictions of the held-out data."""
        result = cls(model, posterior, predictor, run, records, {})
        if held_out is None:
            return result
        found = {
            _AT_MEAN: result._predict(posterior.at_mean(), held_out.loader, 1),
            _AVERAGED: result._predict(posterior, held_out.loader, run.evaluate.samples),
        }
        return cls(model, posterior, predictor, run, records, found)

    def __repr__(self) -> str:
        return f"Fitted {self.run.model.name}: {', '.join(f'{name} {value}' for name, value in self._facts())}"

    def _repr_html_(self) -> str:
        return html_table(f"Fitted {self.run.model.name}", self._facts())

    def _facts(self) -> list[tuple[str, str]]:
        found, rows = self.predictor.look, [("task", self.task), ("method", self.run.optim.name)]
        rows += [("training terms", f"{found.n:,}"), ("epochs", str(self.run.train.epochs))]
        rows.append(("posterior", repr(self.posterior)))
        if self.noise is not None:
            rows.append(("noise from", self.noise.source))
        if self.validation:
            rows.append(("held-out", repr(self.validation[_AVERAGED])))
        return [*rows, *((finding.severity, finding.sentence) for finding in self.advice)]

    @property
    def task(self) -> str:
        """What the network was trained to do."""
        return self.predictor.look.task

    @property
    def noise(self) -> Noise | None:
        """The noise of a regression, and what it was estimated from."""
        return self.predictor.noise

    @property
    def advice(self) -> tuple[Finding, ...]:
        """What is wrong with the fit, with its cause and the one change to make; empty where nothing was found."""
        values = log_facts(self.records, self.run)
        if self.validation:
            values |= prediction_facts({"test": dict(self.validation)}, self.predictor.method.averages)
            values["temperature"] = getattr(self.posterior, "temperature", None)
        return findings(known_facts(values))

    def predict(
        self,
        data: Any,
        samples: int | None = None,
        *,
        seed: int | None = None,
        progress: bool | None = None,
        **options: Any,
    ) -> Any:
        """Average the network over the posterior.

        Args:
            data: inputs as one tensor, array or data frame; a pair (inputs, targets) of these; or a loader that gives
                the same batches in every pass.
            samples: posterior samples; None for as many as in `fit`.
            seed: names the samples; None for that of `fit`.
            progress: show a bar; None: in a terminal.
            options: of the function of the task, e.g. `keep_samples=True`.

        Returns:
            `Predictions`, `RegressionPredictions` in the units of the targets, or `TokenPredictions`.
        """
        return self._predict(self.posterior, _batches(data, self.model), samples, seed, progress=progress, **options)

    def score(self, data: Any, samples: int | None = None) -> dict[str, Any]:
        """Scores of the averaged predictions of data with targets: NLL, accuracy and ECE, or RMSE and coverage.

        Args:
            data: a pair (inputs, targets) of tensors, arrays or data frames, or a loader.
            samples: posterior samples; None for as many as in `fit`.
        """
        found = self.predict(data, samples, progress=False)
        if found.targets is None:
            raise ValueError("the data have no targets, and scores compare with them; give pairs (inputs, targets)")
        return score(found)

    def report(self, path: str | Path, data: Any = None) -> Path:
        """Write a page with scores, curves and figures: one HTML file.

        Args:
            path: of the page, e.g. "report.html".
            data: test data with targets. None shows the held-out data of the fit; scores on them are a little too good,
                because they fitted the temperature and the noise.
        """
        from varlearn.report import write_report

        found, shown, analysis = dict(self.validation), "held-out", {}
        if data is not None:
            loader, shown = _batches(data, self.model), "test"
            found = {_AT_MEAN: self._predict(self.posterior.at_mean(), loader, 1), _AVERAGED: self.predict(data)}
            analysis = page_analysis(
                self.model, self.posterior, self.predictor, loader, found[_AVERAGED], self.run.seed
            )
        if not found:
            raise ValueError("there are no data to show: fit had no val_loader; pass data=test_loader to report()")
        with tempfile.TemporaryDirectory() as place:
            folder = RunFolder(Path(place, f"{self.run.model.name} on {shown} data"))
            self._write_run(folder, found, shown)
            write_json(folder.analysis, finite(analysis))
            advise_run(folder.out)
            page = write_report([folder.out], Path(place, "page"))
            with writing(Path(path)):
                Path(path).parent.mkdir(parents=True, exist_ok=True)
                Path(path).write_bytes(page.read_bytes())
        return Path(path)

    def save(self, folder: str | Path) -> Path:
        """Write all that `varlearn.load(folder, model)` needs: posterior, settings, noise, log, predictions."""
        where = RunFolder(Path(folder))
        with writing(where.out):
            where.out.mkdir(parents=True, exist_ok=True)
        with writing(where.posterior):
            posteriors.save(self.posterior, where.posterior, card=repr(self))
        if self.validation:
            with writing(_validation_file(where)):
                save_predictions(self.validation, _validation_file(where))
        units, noise = self.predictor.units, self.predictor.noise
        write_json(
            where.out / "fitted.json",
            finite({
                "format": FORMAT,
                "format_version": FORMAT_VERSION,
                "run": to_json(self.run),
                "look": asdict(self.predictor.look),
                "units": units and [units.shift.tolist(), units.scale.tolist(), units.noise_factor],
                "noise": noise and [None if noise.variance is None else noise.variance.tolist(), noise.source],
                "records": list(self.records),
            }),
        )  # fmt: skip
        return where.out

    def _predict(
        self, source: Any, loader: Iterable[Any], samples: int | None = None, seed: int | None = None, **options: Any
    ) -> AnyPredictions:
        count = self.run.evaluate.samples if samples is None else samples
        return self.predictor(self.model, source, loader, count, self.run.seed if seed is None else seed, **options)

    def _write_run(self, folder: RunFolder, found: Mapping[str, AnyPredictions], shown: str) -> None:
        """The files of a run, which the report reads."""
        folder.out.mkdir(parents=True)
        run = replace(self.run, data=replace(self.run.data, test=shown))
        folder.config.write_text(to_json(run), encoding="utf-8")
        log = JsonLines(folder.log)
        for record in self.records:
            log.write(record)
        log.close()
        posteriors.save(self.posterior, folder.posterior)
        save_predictions({f"test/{kind}": one for kind, one in found.items()}, folder.predictions)
        write_json(folder.metrics, finite({kind: score(one) for kind, one in found.items()}))


def load(folder: str | Path, model: nn.Module, *, unpack: Unpack | None = None) -> Fitted:
    """Read what `Fitted.save`, or `fit` with a folder, wrote.

    Args:
        folder: where it was saved.
        model: a network of the same class and sizes; it gets the mean weights.
        unpack: as for `fit`.

    Raises:
        FileNotFoundError: if there is no finished fit in the folder.
        CorruptFileError: if a bit of a file has changed.
        ValueError: if the posterior does not fit the model.
    """
    where = RunFolder(Path(folder))
    path = where.out / "fitted.json"
    if not path.exists():
        raise FileNotFoundError(
            f"{path} is missing, so there is no finished fit in {where.out}; save or resume it first"
        )
    values = read_json(path)
    check_format(path, values, {FORMAT: (FORMAT_VERSION,)}, "Fitted.save()")
    learned = posteriors.load(where.posterior, model)
    with rebuilding(path, "a fit"):
        run = from_json(values["run"])
        units, noise = values["units"], values["noise"]
        predictor = TaskPredictor(
            Look(**values["look"]),
            named(run.optim.name)(run.optim),
            units and TargetUnits(torch.tensor(units[0]), torch.tensor(units[1]), units[2]),
            noise and Noise(None if noise[0] is None else torch.tensor(noise[0], dtype=torch.float64), noise[1]),
            unpack,
        )
        records = values["records"]
    found = load_predictions(_validation_file(where)) if _validation_file(where).exists() else {}
    write_into(model, {**(learned.fixed or {}), **learned.mean})
    return Fitted(model, learned, predictor, run, records, found)


def _validation_file(where: RunFolder) -> Path:
    return where.out / "held_out.safetensors"


def _batches(data: Any, model: nn.Module) -> Iterable[Any]:
    """Inputs, a pair of inputs and targets, or a loader, as batches."""
    if isinstance(data, tuple) and len(data) == 2 and all(map(is_array, data)):
        inputs, targets = as_tensors(data, weights_dtype(model))
        if len(inputs) != len(targets):
            raise ValueError(f"there are {len(inputs)} inputs and {len(targets)} targets; give one target per input")
        return list(zip(inputs.split(_ROWS), targets.split(_ROWS), strict=True))
    if is_array(data):
        return list(as_tensors(data, weights_dtype(model)).split(_ROWS))
    if isinstance(data, Mapping):
        return [data]
    return data
