"""The curvature of a posterior in the unit that merging needs: of the sum of the losses over the data set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from varlearn.posterior import DiagGaussian, Origin
from varlearn.types import Params

_ESTIMATES = ("ivon", "fisher", "squared_gradient", "sqrt_v", "second_moment")


@dataclass(frozen=True)
class Units:
    """From the numbers of a file to the curvature of the sum of the losses: factor * value, or factor * value^2.

    >>> Units(factor=100.0).summed(torch.tensor([2.0])), Units(10.0, squared=True).summed(torch.tensor([3.0]))
    (tensor([200.], dtype=torch.float64), tensor([90.], dtype=torch.float64))
    """

    factor: float = 1.0
    squared: bool = False

    def summed(self, values: Tensor) -> Tensor:
        """The curvature of the sum of the losses, in float64."""
        wide = values.to(torch.float64)
        return (wide.square() if self.squared else wide) * self.factor


def units_of(what: str, origin: Origin) -> Units:
    """How h of a file or a posterior with this origin is converted.

    - "per" is "sum": nothing to do.
    - "ivon", "fisher", "squared_gradient" per mean: times n. `ess` is no substitute for n: lambda may differ from the
      number of examples.
    - "second_moment", AdamW's v, is the mean square of a batch's gradient, and B v that of an example's where gradients
      are mostly noise. Hence n B h, the same as VAdamW's n (B v); and n B h^2 for its root, "sqrt_v".

    Args:
        what: name of the posterior in messages.
        origin: what is known of it.

    >>> units_of("base", Origin(curvature="ivon", n=50))
    Units(factor=50.0, squared=False)
    >>> units_of("base", Origin(curvature="sqrt_v", n=50, batch_size=10))
    Units(factor=500.0, squared=True)
    """
    if origin.curvature not in _ESTIMATES:
        raise ValueError(
            f"{what}.origin.curvature={origin.curvature!r} is no known estimate of the curvature; it must be one of "
            f"{', '.join(_ESTIMATES)}; set it with dataclasses.replace(posterior, origin=Origin(...)) or as kind in a "
            "recipe, or give `hess`"
        )
    of_adamw = origin.curvature in ("sqrt_v", "second_moment")
    if of_adamw and origin.per == "sum":
        raise ValueError(
            f"{what}.origin.curvature={origin.curvature!r} belongs to the mean loss, but per='sum'; set per='mean', or "
            "call it 'squared_gradient' if it is a sum of squares"
        )
    if origin.per == "sum":
        return Units()
    _check_size(what, "n", origin.n, "the number of examples")
    if not of_adamw:
        return Units(float(origin.n or 0))
    _check_size(what, "batch_size", origin.batch_size, "the examples of one step")
    return Units(float(origin.n or 0) * float(origin.batch_size or 0), squared=origin.curvature == "sqrt_v")


def own_curvature(what: str, posterior: Any) -> tuple[Params, Units]:
    """h of a posterior, and its units.

    Args:
        what: name of the posterior in messages.
        posterior: a `DiagGaussian` whose origin says what its h is.

    >>> w = {"w": torch.ones(1)}
    >>> own_curvature("base", DiagGaussian(w, w, ess=100.0, origin=Origin(curvature="ivon", n=50)))
    ({'w': tensor([1.])}, Units(factor=50.0, squared=False))
    """
    if not isinstance(posterior, DiagGaussian):
        raise TypeError(
            f"{what} is a {type(posterior).__name__}, which has no curvature; it must be a DiagGaussian, or give `hess`"
        )
    return posterior.hess, units_of(what, posterior.origin)


def _check_size(what: str, name: str, value: float | None, meaning: str) -> None:
    if value is None or not 0 < value < float("inf"):
        raise ValueError(
            f"{what}.origin.{name}={value}: h belongs to the mean loss, and the sum needs {meaning}, > 0 "
            f"and finite; pass {name}= to DiagGaussian.from_optimizer, or set it with "
            f"dataclasses.replace(posterior, origin=Origin(curvature=..., {name}=...)) or as {name} in a recipe"
        )
