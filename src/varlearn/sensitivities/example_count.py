"""The width of a posterior that leave-one-out needs: that of ess = n at temperature 1."""

from __future__ import annotations

from dataclasses import replace

from varlearn.posterior import DiagGaussian


def with_ess(posterior: DiagGaussian, n: float) -> DiagGaussian:
    """The same curvature with lambda = n at temperature 1.

    Args:
        posterior: trained with another ess, or calibrated.
        n: number of training examples, of tokens for a language model.

    >>> import torch
    >>> q = DiagGaussian({"w": torch.zeros(1)}, {"w": torch.ones(1)}, ess=400.0).at_temperature(3.0)
    >>> with_ess(q, 100).std["w"].item()
    0.10000000149011612
    """
    return replace(posterior, ess=float(n), temperature=1.0)
