"""Variational learning as ordinary as AdamW: train with IVON, get a posterior over the weights."""

from varlearn import metrics, posterior, predict, presets
from varlearn.batchnorm import recalibrate_batchnorm
from varlearn.optim import IVON, elbo
from varlearn.posterior import DiagGaussian, Mixture, Point

__all__ = [
    "IVON",
    "DiagGaussian",
    "Mixture",
    "Point",
    "elbo",
    "metrics",
    "posterior",
    "predict",
    "presets",
    "recalibrate_batchnorm",
]
__version__ = "0.1.0"
