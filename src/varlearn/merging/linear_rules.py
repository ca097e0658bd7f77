"""Merging rules that give each model one number: averaging and task arithmetic."""

from __future__ import annotations

from collections.abc import Sequence


def average(weights: Sequence[float], alpha: float) -> list[float]:
    """c_t = alpha w_t / sum_s w_s: the weighted mean of the models, or a point between it and the base.

    >>> average([1.0, 3.0], alpha=1.0)
    [0.25, 0.75]
    """
    total = sum(weights)
    return [alpha * (weight / total) for weight in weights]


def task_arithmetic(weights: Sequence[float], alpha: float) -> list[float]:
    """c_t = alpha w_t: the differences from the base, added up (Ilharco et al., 2023).

    >>> task_arithmetic([1.0, 3.0], alpha=0.5)
    [0.5, 1.5]
    """
    return [alpha * weight for weight in weights]
