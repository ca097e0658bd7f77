"""Variational learning as ordinary as AdamW: train with IVON, get a posterior over the weights.

The names below are imported when they are first used, so that what needs no torch, `varlearn --help` for one, does not
wait for it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from varlearn import advice, metrics, optim, posterior, prediction, presets
    from varlearn.approximations import SWAG, fit_laplace, insert_dropout
    from varlearn.batchnorm import recalibrate_batchnorm
    from varlearn.fitting import Fitted, fit, load
    from varlearn.merging import merge, squared_gradients
    from varlearn.optim import IVON, VAdamW, elbo
    from varlearn.posterior import DiagGaussian, Mixture, Point
    from varlearn.prediction import calibrate, generate, predict, predict_regression, predict_tokens
    from varlearn.sensitivities import Sensitivity, SensitivityTracker, TokenSensitivity, sensitivity

__all__ = [
    "IVON",
    "SWAG",
    "DiagGaussian",
    "Fitted",
    "Mixture",
    "Point",
    "Sensitivity",
    "SensitivityTracker",
    "TokenSensitivity",
    "VAdamW",
    "advice",
    "calibrate",
    "elbo",
    "fit",
    "fit_laplace",
    "generate",
    "insert_dropout",
    "load",
    "merge",
    "metrics",
    "optim",
    "posterior",
    "predict",
    "predict_regression",
    "predict_tokens",
    "prediction",
    "presets",
    "recalibrate_batchnorm",
    "sensitivity",
    "squared_gradients",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    match name:
        case "advice":
            return import_module("varlearn.advice")
        case "metrics":
            return import_module("varlearn.metrics")
        case "optim":
            return import_module("varlearn.optim")
        case "posterior":
            return import_module("varlearn.posterior")
        case "prediction":
            return import_module("varlearn.prediction")
        case "presets":
            return import_module("varlearn.presets")
        case "IVON" | "VAdamW" | "elbo":
            return getattr(import_module("varlearn.optim"), name)
        case "DiagGaussian" | "Mixture" | "Point":
            return getattr(import_module("varlearn.posterior"), name)
        case "SWAG" | "fit_laplace" | "insert_dropout":
            return getattr(import_module("varlearn.approximations"), name)
        case "calibrate" | "generate" | "predict" | "predict_regression" | "predict_tokens":
            return getattr(import_module("varlearn.prediction"), name)
        case "Sensitivity" | "SensitivityTracker" | "TokenSensitivity" | "sensitivity":
            return getattr(import_module("varlearn.sensitivities"), name)
        case "Fitted" | "fit" | "load":
            return getattr(import_module("varlearn.fitting"), name)
        case "merge" | "squared_gradients":
            return getattr(import_module("varlearn.merging"), name)
        case "recalibrate_batchnorm":
            return import_module("varlearn.batchnorm").recalibrate_batchnorm
    raise AttributeError(f"module 'varlearn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
