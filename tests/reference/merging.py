"""Merging rules in NumPy float64: one weight at a time, as the papers write them, nothing clever."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


def hessian(
    base: Vector, models: Sequence[Vector], h0: Vector, hess: Sequence[Vector], weights: Sequence[float], alpha: float
) -> Vector:
    """The paper's Section 4.3.2, with a factor a_t = alpha w_t per task in numerator and denominator."""
    merged = base.copy()
    for i in range(base.size):
        prior = max(h0[i], 0.0) + 1e-12
        total = prior + sum(alpha * w * max(h[i], 0.0) for w, h in zip(weights, hess, strict=True))
        for w, h, model in zip(weights, hess, models, strict=True):
            merged[i] += alpha * w * (prior + max(h[i], 0.0)) / total * (model[i] - base[i])
    return merged


def fisher(models: Sequence[Vector], hess: Sequence[Vector], weights: Sequence[float]) -> Vector:
    """Matena and Raffel (2022), Equation 4."""
    merged = np.zeros_like(models[0])
    for i in range(merged.size):
        scaled = [w * max(h[i], 1e-12) for w, h in zip(weights, hess, strict=True)]
        merged[i] = sum(f * model[i] for f, model in zip(scaled, models, strict=True)) / sum(scaled)
    return merged


def task_arithmetic(base: Vector, models: Sequence[Vector], weights: Sequence[float], alpha: float) -> Vector:
    """Ilharco et al. (2023)."""
    merged = base.copy()
    for w, model in zip(weights, models, strict=True):
        merged += alpha * w * (model - base)
    return merged


def ties(base: Vector, models: Sequence[Vector], weights: Sequence[float], alpha: float, keep: int) -> Vector:
    """Yadav et al. (2023), Algorithm 1, on one tensor: trim to the `keep` largest, elect the sign, disjoint mean."""
    changes = [model - base for model in models]
    for change in changes:
        change[np.argsort(np.abs(change))[: base.size - keep]] = 0.0
    merged = base.copy()
    for i in range(base.size):
        sign = np.sign(sum(w * change[i] for w, change in zip(weights, changes, strict=True)))
        agreeing = [(w, c[i]) for w, c in zip(weights, changes, strict=True) if c[i] != 0 and np.sign(c[i]) == sign]
        if agreeing:
            merged[i] += alpha * sum(w * c for w, c in agreeing) / sum(w for w, _ in agreeing)
    return merged
