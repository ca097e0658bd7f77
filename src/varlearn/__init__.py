"""Variational learning as ordinary as AdamW: train with IVON, get a posterior over the weights."""

from varlearn.optim import IVON, elbo

__all__ = ["IVON", "elbo"]
__version__ = "0.1.0"
