"""Predictive distributions of Hamiltonian Monte Carlo (Izmailov et al., 2021), as its competition published them.

Prepared form alone: `hmc/NAME_hmc_probs.npz`, with the rows in the order of varlearn's test sets.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from varlearn.data import prepared, sources

SHAPES = {"cifar10": (10_000, 10), "imdb": (25_000, 2), "dermamnist": (2_000, 7)}


def hmc_predictive(name: str, root: Path | None = None) -> Tensor:
    """Log-probabilities of Hamiltonian Monte Carlo on a test set, shape (N, C), float32.

    Args:
        name: "cifar10" (ResNet-20 with filter response normalization and Swish), "imdb" (CNN-LSTM) or "dermamnist"
            (LeNet; the images themselves are not at hand).
        root: where the data are; None for the usual places.

    Raises:
        MissingDataError: if the file is not there.
    """
    if name not in SHAPES:
        raise ValueError(f"name={name!r} has no predictive of Monte Carlo; choose one of {', '.join(SHAPES)}")
    place = f"hmc/{name}_hmc_probs.npz"
    path = sources.find(place, root)
    if path is None:
        raise sources.missing(place, root, "set VARLEARN_DATA to a folder that holds it")
    arrays = prepared.arrays(path)
    probs = torch.from_numpy(arrays["probs"]).double()
    return (probs / probs.sum(1, keepdim=True)).clamp_min(1e-12).log().float()
