"""The curvature of a posterior in the unit that merging needs: of the sum of the losses over the data set."""

from __future__ import annotations

from typing import Any

from varlearn.posterior import DiagGaussian
from varlearn.types import Params

_ESTIMATES = ("ivon", "fisher", "squared_gradient")


def own_curvature(what: str, posterior: Any) -> tuple[Params, float]:
    """h of a posterior, and the factor that takes it to the sum of the losses: n for a mean, 1 for a sum.

    `ess` is no substitute for n: lambda may differ from the number of examples.

    Args:
        what: name of the posterior in messages.
        posterior: a `DiagGaussian` whose origin says what its h is.

    >>> import torch
    >>> from varlearn.posterior import Origin
    >>> w = {"w": torch.ones(1)}
    >>> own_curvature("base", DiagGaussian(w, w, ess=100.0, origin=Origin(curvature="ivon", n=50)))
    ({'w': tensor([1.])}, 50.0)
    """
    if not isinstance(posterior, DiagGaussian):
        raise TypeError(
            f"{what} is a {type(posterior).__name__}, which has no curvature; it must be a DiagGaussian, or give `hess`"
        )
    origin = posterior.origin
    if origin.curvature not in _ESTIMATES:
        raise ValueError(
            f"{what}.origin.curvature={origin.curvature!r} is no known estimate of the curvature; it must be one of "
            f"{', '.join(_ESTIMATES)}; set it with dataclasses.replace(posterior, origin=Origin(...)), or give `hess`"
        )
    if origin.per == "sum":
        return posterior.hess, 1.0
    if origin.n is None or not 0 < origin.n < float("inf"):
        raise ValueError(
            f"{what}.origin.n={origin.n}: h belongs to the mean loss, and the sum needs the number of examples, > 0 "
            "and finite; set it with dataclasses.replace(posterior, origin=Origin(curvature=..., n=...))"
        )
    return posterior.hess, float(origin.n)
