"""Posterior pruning: remove the weights that the posterior does not tell apart from zero."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from varlearn.posterior.gaussian import DiagGaussian
from varlearn.types import Params


def signal_to_noise(posterior: DiagGaussian) -> Params:
    """|m| / sigma of every weight; 0 where a weight is exactly zero.

    >>> q = DiagGaussian({"w": torch.tensor([-0.3])}, {"w": torch.ones(1)}, ess=100.0)
    >>> round(signal_to_noise(q)["w"].item(), 6)
    3.0
    """
    std = posterior.std
    return {
        name: torch.where(mean == 0, torch.zeros_like(mean), mean.abs() / std[name])
        for name, mean in posterior.mean.items()
    }


def prune(posterior: DiagGaussian, fraction: float) -> DiagGaussian:
    """Set the weights of the lowest |m| / sigma to exactly zero, without uncertainty (mean 0, hess infinite).

    Args:
        posterior: what to prune; it is not changed.
        fraction: of all its weights, in [0, 1]; over all tensors together, rounded to a whole number of weights.

    Returns:
        A posterior whose samples have these weights at 0. `hess.isinf()` is the mask of what was removed.

    >>> q = DiagGaussian({"w": torch.tensor([5.0, 0.1, -3.0, 0.2])}, {"w": torch.ones(4)}, ess=1.0)
    >>> prune(q, 0.5).mean["w"]
    tensor([ 5.,  0., -3.,  0.])
    """
    if not 0 <= fraction <= 1:
        raise ValueError(f"fraction={fraction} must be in [0, 1]; 0.9 removes nine of ten weights")
    ratio = signal_to_noise(replace(posterior, temperature=1.0))  # the order is the same at every temperature
    flat = torch.cat([value.flatten().float() for value in ratio.values()])
    # A stable sort removes exactly this many, ties in the order of the tensors.
    order = torch.argsort(flat, stable=True)[: round(fraction * flat.numel())]
    removed = torch.zeros_like(flat, dtype=torch.bool)
    removed[order] = True
    mean, hess = {}, {}
    for (name, value), mask in zip(
        posterior.mean.items(), removed.split([value.numel() for value in ratio.values()]), strict=True
    ):
        mask = mask.view_as(value)
        mean[name] = value.masked_fill(mask, 0.0)
        hess[name] = posterior.hess[name].masked_fill(mask, math.inf)
    return replace(posterior, mean=mean, hess=hess)
