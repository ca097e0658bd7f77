"""Variational AdamW in NumPy float64, from its formulas: one tensor after the other, nothing clever.

mean       m   <- m - lr (mhat / (sqrt(vhat) + eps) + decay m)
precision  1 / sigma^2 = lambda B vhat + 1 / s^2, no noise before the first step
annealing  lambda = n max(1, 100^(1 - passes / 10))
prior      s = w max(rms of the first weights, rms of the mean), the latter measured at every tenth step
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Settings:
    """What the user chooses."""

    n: float
    batch: float
    lr: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    decay: float = 1e-2
    ess: Callable[[float], float] | None = None  # of the passes
    width: float | None = None
    maximize: bool = False


def rms(values: Array) -> float:
    return math.sqrt(float(np.mean(np.square(values))))


def is_matrix(values: Array) -> bool:
    return sum(size > 1 for size in values.shape) > 1


class VariationalAdamW:
    """Means, moments and prior widths of some tensors, in the order of the model."""

    def __init__(self, weights: Sequence[Array], settings: Settings) -> None:
        self.settings, self.t = settings, 0
        self.m = [np.array(w, dtype=np.float64) for w in weights]
        self.g = [np.zeros_like(w) for w in self.m]
        self.v = [np.zeros_like(w) for w in self.m]
        matrices = [w for w in self.m if is_matrix(w)]
        self.width = min(1.0, 2.0 / (len(matrices) + 1)) if settings.width is None else settings.width
        before = rms(matrices[0]) if matrices else max(rms(w) for w in self.m)
        self.first = []
        for w in self.m:
            before = rms(w) if is_matrix(w) else before
            self.first.append(before)
        self.measure()

    def measure(self) -> None:
        self.s = [self.width * max(first, rms(m)) for first, m in zip(self.first, self.m, strict=True)]

    def ess(self) -> float:
        s = self.settings
        passes = self.t * s.batch / s.n
        return s.ess(passes) if s.ess is not None else s.n * max(1.0, 100.0 ** (1.0 - passes / 10.0))

    def curvature(self, k: int) -> Array:
        """B vhat."""
        return self.settings.batch * self.v[k] / (1.0 - self.settings.beta2**self.t)

    def sigma(self, k: int) -> Array:
        if self.t == 0:
            return np.zeros_like(self.m[k])
        return 1.0 / np.sqrt(self.ess() * self.curvature(k) + 1.0 / self.s[k] ** 2)

    def sample(self, k: int, epsilon: Array) -> Array:
        return self.m[k] + self.sigma(k) * epsilon

    def step(self, grads: Sequence[Array], unclipped: Sequence[Array] | None = None) -> None:
        s = self.settings
        self.t += 1
        for k, (grad, raw) in enumerate(zip(grads, unclipped or grads, strict=True)):
            sign = -1.0 if s.maximize else 1.0
            self.g[k] = s.beta1 * self.g[k] + (1.0 - s.beta1) * sign * grad
            self.v[k] = s.beta2 * self.v[k] + (1.0 - s.beta2) * raw * raw
            mhat = self.g[k] / (1.0 - s.beta1**self.t)
            vhat = self.v[k] / (1.0 - s.beta2**self.t)
            self.m[k] = self.m[k] - s.lr * (mhat / (np.sqrt(vhat) + s.eps) + s.decay * self.m[k])
        if self.t % 10 == 0:
            self.measure()
