"""Predictions averaged over a posterior: classification, regression, language."""

from varlearn.prediction.answer_tokens import AnswerTokens, answer_logits
from varlearn.prediction.average import log_average
from varlearn.prediction.classifier import Predictions, predict
from varlearn.prediction.gather import gather_ranks
from varlearn.prediction.generation import Generated, generate
from varlearn.prediction.language_model import TokenPredictions, predict_tokens
from varlearn.prediction.mixing_weights import mixing_weights, target_log_probs
from varlearn.prediction.noise_estimate import estimate_noise
from varlearn.prediction.predictions_file import load_predictions, save_predictions
from varlearn.prediction.regressor import RegressionPredictions, predict_regression
from varlearn.prediction.sampler_mixture import AtMean, SamplerMixture
from varlearn.prediction.samplers import Dropout, Linearized, Weights
from varlearn.prediction.scores import score, score_ood
from varlearn.prediction.temperature import calibrate, temperature_curve

__all__ = [
    "AnswerTokens",
    "AtMean",
    "Dropout",
    "Generated",
    "Linearized",
    "Predictions",
    "RegressionPredictions",
    "SamplerMixture",
    "TokenPredictions",
    "Weights",
    "answer_logits",
    "calibrate",
    "estimate_noise",
    "gather_ranks",
    "generate",
    "load_predictions",
    "log_average",
    "mixing_weights",
    "predict",
    "predict_regression",
    "predict_tokens",
    "save_predictions",
    "score",
    "score_ood",
    "target_log_probs",
    "temperature_curve",
]
