"""Predictions averaged over a posterior: classification, regression, language."""

from varlearn.predict.average import log_average
from varlearn.predict.classifier import Predictions, predict
from varlearn.predict.gather import gather_ranks
from varlearn.predict.language_model import TokenPredictions, predict_tokens
from varlearn.predict.predictions_file import load_predictions, save_predictions
from varlearn.predict.regressor import RegressionPredictions, predict_regression
from varlearn.predict.samplers import Dropout, Linearized, Weights
from varlearn.predict.temperature import calibrate

__all__ = [
    "Dropout",
    "Linearized",
    "Predictions",
    "RegressionPredictions",
    "TokenPredictions",
    "Weights",
    "calibrate",
    "gather_ranks",
    "load_predictions",
    "log_average",
    "predict",
    "predict_regression",
    "predict_tokens",
    "save_predictions",
]
