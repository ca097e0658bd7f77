"""Where a posterior comes from: what a reader of its file needs to know besides the tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

Curvature = Literal["ivon", "fisher", "squared_gradient", "sqrt_v", "constant"]
Per = Literal["mean", "sum"]


@dataclass(frozen=True)
class Origin:
    """The training that gave a posterior; None for what is not known.

    Attributes:
        method: name of the method or optimizer, e.g. "ivon".
        curvature: what `hess` is: IVON's estimate of the Hessian's diagonal ("ivon"); the Fisher diagonal with labels
            drawn from the model ("fisher") or from the data, B times the mean squared gradient ("squared_gradient");
            the root of AdamW's second moment ("sqrt_v"); or the same number for all weights ("constant").
        per: whether `hess` belongs to the mean loss or to the sum over all examples.
        n: number of terms of the training loss: examples, or tokens of a language model.
        batch_size: terms of the loss of one step, over all micro-batches and ranks.

    >>> Origin(method="ivon", curvature="ivon").known()
    {'method': 'ivon', 'curvature': 'ivon', 'per': 'mean'}
    """

    method: str | None = None
    curvature: Curvature | None = None
    per: Per = "mean"
    n: float | None = None
    batch_size: float | None = None

    def __post_init__(self) -> None:
        for name, value, allowed in (
            ("curvature", self.curvature, (None, *get_args(Curvature))),
            ("per", self.per, get_args(Per)),
        ):
            if value not in allowed:
                words = ", ".join(str(one) for one in allowed if one is not None)
                raise ValueError(f"{name}={value!r} must be one of {words}; leave it out if it is not known")

    def known(self) -> dict[str, Any]:
        """The entries that are not None, for the header of a file."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return {name: value for name, value in values.items() if value is not None}

    @classmethod
    def read(cls, description: Mapping[str, Any]) -> Origin:
        """The origin that the header of a file describes; entries of other kinds are passed over.

        >>> Origin.read({"kind": "DiagGaussian", "n": 50}).n
        50
        """
        names = [item.name for item in fields(cls)]
        return cls(**{name: description[name] for name in names if description.get(name) is not None})
