"""Algorithm 1 of the paper in NumPy float64: one scalar at a time, in the order of its lines, nothing clever.

Options the paper describes in the text are flags here: the average over S samples (and J devices, which is the same
average), clipping of line 7 to [-xi, xi], rescaling of alpha by (h0 + delta), a prior mean m0 (the quadratic penalty to
the initialization), and the squared-gradient estimate in place of line 3.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Settings:
    """The inputs of Algorithm 1."""

    alpha: float = 0.1
    lam: float = 100.0
    h0: float = 1.0
    beta1: float = 0.9
    beta2: float = 0.99
    delta: float = 0.0
    xi: float = math.inf
    rescale: bool = True
    debias: bool = True
    maximize: bool = False
    squared_gradient: bool = False


class Algorithm1:
    """State m, h, g, t of one flat parameter vector, advanced by `step`."""

    def __init__(self, m: Vector, settings: Settings, m0: Vector | None = None) -> None:
        self.settings = settings
        self.m = np.array(m, dtype=np.float64).reshape(-1)
        self.m0 = np.zeros_like(self.m) if m0 is None else np.array(m0, dtype=np.float64).reshape(-1)
        self.h = np.full_like(self.m, settings.h0)
        self.g = np.zeros_like(self.m)
        self.t = 0

    def sigma(self, i: int) -> float:
        """Line 8."""
        return 1.0 / math.sqrt(self.settings.lam * (self.h[i] + self.settings.delta))

    def sample(self, epsilon: Vector) -> Vector:
        """theta ~ q of line 2, for the given standard normal noise."""
        theta = np.empty_like(self.m)
        for i in range(len(self.m)):
            theta[i] = self.m[i] + self.sigma(i) * epsilon[i]
        return theta

    def step(self, thetas: Sequence[Vector], grads: Sequence[Vector]) -> None:
        """Lines 2 to 7, given the gradient of the loss at each of the samples."""
        s = self.settings
        self.t += 1
        alpha = s.alpha * (s.h0 + s.delta) if s.rescale else s.alpha
        sign = -1.0 if s.maximize else 1.0
        for i in range(len(self.m)):
            # lines 2 and 3, averaged over the samples
            ghat = hhat = 0.0
            for theta, grad in zip(thetas, grads, strict=True):
                gradient = sign * grad[i]
                ghat += gradient / len(thetas)
                if s.squared_gradient:
                    hhat += gradient**2 / len(thetas)
                else:
                    hhat += gradient * (theta[i] - self.m[i]) / self.sigma(i) ** 2 / len(thetas)
            # line 4
            self.g[i] = s.beta1 * self.g[i] + (1 - s.beta1) * ghat
            # line 5
            h = self.h[i]
            self.h[i] = s.beta2 * h + (1 - s.beta2) * hhat + 0.5 * (1 - s.beta2) ** 2 * (h - hhat) ** 2 / (h + s.delta)
            # line 6
            gbar = self.g[i] / (1 - s.beta1**self.t) if s.debias else self.g[i]
            # line 7
            direction = (gbar + s.delta * (self.m[i] - self.m0[i])) / (self.h[i] + s.delta)
            self.m[i] -= alpha * min(max(direction, -s.xi), s.xi)
