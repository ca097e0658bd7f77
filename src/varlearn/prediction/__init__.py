"""Predictions averaged over a posterior: classification, regression, language."""

from varlearn.prediction.average import log_average
from varlearn.prediction.classifier import Predictions, predict
from varlearn.prediction.gather import gather_ranks
from varlearn.prediction.language_model import TokenPredictions, predict_tokens
from varlearn.prediction.noise_estimate import estimate_noise
from varlearn.prediction.predictions_file import load_predictions, save_predictions
from varlearn.prediction.regressor import RegressionPredictions, predict_regression
from varlearn.prediction.samplers import Dropout, Linearized, Weights
from varlearn.prediction.scores import score, score_ood
from varlearn.prediction.temperature import calibrate, temperature_curve

__all__ = [
    "Dropout",
    "Linearized",
    "Predictions",
    "RegressionPredictions",
    "TokenPredictions",
    "Weights",
    "calibrate",
    "estimate_noise",
    "gather_ranks",
    "load_predictions",
    "log_average",
    "predict",
    "predict_regression",
    "predict_tokens",
    "save_predictions",
    "score",
    "score_ood",
    "temperature_curve",
]
