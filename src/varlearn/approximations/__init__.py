"""Posteriors for networks that were trained as usual: collected while training, fitted afterwards, or by dropout."""

from varlearn.approximations.dropout_insertion import insert_dropout
from varlearn.approximations.laplace_fit import Laplace, fit_laplace
from varlearn.approximations.layer_noise import layer_noise
from varlearn.approximations.weight_collection import SWAG

__all__ = ["SWAG", "Laplace", "fit_laplace", "insert_dropout", "layer_noise"]
