"""Training: from a `Run` to a folder with its log, checkpoints, posterior, predictions and metrics.

The settings need no torch; the functions that do are imported when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from varlearn.files.atomic import WriteError
from varlearn.train.config import Data, Evaluate, Model, Optim, Run, Train, from_json, to_json
from varlearn.train.run_errors import Interrupted, NonFiniteLossError, PeerError, RunFolderError

if TYPE_CHECKING:
    from varlearn.train.evaluate import load_run_predictions, predict_run, score_run
    from varlearn.train.input_prediction import predict_inputs
    from varlearn.train.log import Logger, open_logger
    from varlearn.train.pretrained_export import export_pretrained
    from varlearn.train.run_advice import advise_run, facts_of_run
    from varlearn.train.run_ensembles import ensemble
    from varlearn.train.run_folder import RunFolder
    from varlearn.train.sensitivity_stage import load_run_sensitivity, sensitivity_run
    from varlearn.train.training_loop import fit

__all__ = [
    "Data",
    "Evaluate",
    "Interrupted",
    "Logger",
    "Model",
    "NonFiniteLossError",
    "Optim",
    "PeerError",
    "Run",
    "RunFolder",
    "RunFolderError",
    "Train",
    "WriteError",
    "advise_run",
    "ensemble",
    "export_pretrained",
    "facts_of_run",
    "fit",
    "from_json",
    "load_run_predictions",
    "load_run_sensitivity",
    "open_logger",
    "predict_inputs",
    "predict_run",
    "score_run",
    "sensitivity_run",
    "to_json",
]


def __getattr__(name: str) -> Any:
    match name:
        case "fit":
            return import_module("varlearn.train.training_loop").fit
        case "ensemble":
            return import_module("varlearn.train.run_ensembles").ensemble
        case "load_run_predictions" | "predict_run" | "score_run":
            return getattr(import_module("varlearn.train.evaluate"), name)
        case "load_run_sensitivity" | "sensitivity_run":
            return getattr(import_module("varlearn.train.sensitivity_stage"), name)
        case "export_pretrained":
            return import_module("varlearn.train.pretrained_export").export_pretrained
        case "predict_inputs":
            return import_module("varlearn.train.input_prediction").predict_inputs
        case "advise_run" | "facts_of_run":
            return getattr(import_module("varlearn.train.run_advice"), name)
        case "RunFolder":
            return import_module("varlearn.train.run_folder").RunFolder
        case "Logger" | "open_logger":
            return getattr(import_module("varlearn.train.log"), name)
    raise AttributeError(f"module 'varlearn.train' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
