"""DARE (Yu et al., 2024): drop random changes, and scale up the others so that the expectation stays."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from varlearn.posterior.draw import normals

_STREAM, _STREAMS = 105, 1_000  # no other use of the noise has a stream that is 105 modulo 1,000


def dare(
    base: Tensor, weights: Sequence[float], alpha: float, density: float, seed: int, position: int, piece: int = 0
) -> list[Tensor]:
    """c_t = alpha w_t k_t / density, where each entry of k_t is 1 with probability `density`, else 0.

    Args:
        base: gives the shape and the device.
        weights: w_t >= 0. Model number t has its own random numbers.
        alpha: one factor >= 0 for all models.
        density: probability that a change is kept.
        seed: the result is a function of it, whatever was drawn before.
        position: of the tensor among the sorted names.
        piece: number of these entries among the pieces of the tensor.

    >>> dare(torch.zeros(4), [1.0], 1.0, density=0.5, seed=0, position=0)[0].unique().tolist()
    [0.0, 2.0]
    """
    like = base.double()
    bound = torch.special.ndtri(torch.tensor(density, dtype=torch.float64, device=base.device))
    kept = [normals(like, seed, index, position, _STREAM + _STREAMS * piece) < bound for index in range(len(weights))]
    return [alpha * weight / density * mask.double() for weight, mask in zip(weights, kept, strict=True)]
