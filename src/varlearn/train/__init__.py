"""Training: from a `Run` to a folder with its log, checkpoints, posterior, predictions and metrics."""

from varlearn.train.config import Data, Evaluate, Model, Optim, Run, Train, from_json, to_json
from varlearn.train.errors import Interrupted, NonFiniteLossError, RunFolderError, WriteError
from varlearn.train.evaluate import load_run_predictions, predict_run, score_run
from varlearn.train.folder import RunFolder
from varlearn.train.log import Logger, open_logger
from varlearn.train.loop import fit

__all__ = [
    "Data",
    "Evaluate",
    "Interrupted",
    "Logger",
    "Model",
    "NonFiniteLossError",
    "Optim",
    "Run",
    "RunFolder",
    "RunFolderError",
    "Train",
    "WriteError",
    "fit",
    "from_json",
    "load_run_predictions",
    "open_logger",
    "predict_run",
    "score_run",
    "to_json",
]
