"""Distributions over the weights of a model: made from an optimizer, sampled, mixed, compared, saved."""

from varlearn.files.sealed import CorruptFileError
from varlearn.posterior.binding import check_fits
from varlearn.posterior.discrete import Mixture, Point, components
from varlearn.posterior.divergence import kl
from varlearn.posterior.gaussian import DiagGaussian
from varlearn.posterior.kronecker import KroneckerGaussian
from varlearn.posterior.lowrank import LowRankGaussian
from varlearn.posterior.origin import Origin, weights_sha256
from varlearn.posterior.posterior_file import load, save
from varlearn.posterior.pruning import prune, signal_to_noise
from varlearn.posterior.summary import LayerScale, MarginalStd, StdSummary, layer_scales, marginal_std

__all__ = [
    "CorruptFileError",
    "DiagGaussian",
    "KroneckerGaussian",
    "LayerScale",
    "LowRankGaussian",
    "MarginalStd",
    "Mixture",
    "Origin",
    "Point",
    "StdSummary",
    "check_fits",
    "components",
    "kl",
    "layer_scales",
    "load",
    "marginal_std",
    "prune",
    "save",
    "signal_to_noise",
    "weights_sha256",
]
