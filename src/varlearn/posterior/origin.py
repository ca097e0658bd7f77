"""Where a posterior comes from: what a reader of its file needs to know besides the tensors."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from torch import Tensor

from varlearn.core.tensor_bytes import raw_bytes

Curvature = Literal["ivon", "fisher", "squared_gradient", "sqrt_v", "second_moment", "constant"]
Per = Literal["mean", "sum"]
Predict = Literal["weights", "linearized"]


@dataclass(frozen=True)
class Origin:
    """The training that gave a posterior; None for what is not known.

    Attributes:
        method: name of the method or optimizer, e.g. "ivon".
        curvature: what `hess` is: IVON's estimate of the Hessian's diagonal ("ivon"); the Fisher diagonal with labels
            drawn from the model ("fisher") or from the data, B times the mean squared gradient ("squared_gradient");
            AdamW's second moment v, such as a published `exp_avg_sq` ("second_moment"), or its root ("sqrt_v"); or the
            same number for all weights ("constant").
        per: whether `hess` belongs to the mean loss or to the sum over all examples.
        n: number of terms of the training loss: examples, or tokens of a language model.
        predict: how the posterior was fitted to predict: by sampled weights, or by the network linearized at the mean.
            `predict` follows it.
        batch_size: terms of the loss of one step, over all micro-batches and ranks.
        base_sha256: of the weights that finetuning started from; see `varlearn.posterior.weights_sha256`.

    >>> Origin(method="ivon", curvature="ivon").known()
    {'method': 'ivon', 'curvature': 'ivon', 'per': 'mean'}
    """

    method: str | None = None
    curvature: Curvature | None = None
    per: Per = "mean"
    n: float | None = None
    batch_size: float | None = None
    predict: Predict | None = None
    base_sha256: str | None = None

    def __post_init__(self) -> None:
        for name, value, allowed in (
            ("curvature", self.curvature, (None, *get_args(Curvature))),
            ("per", self.per, get_args(Per)),
            ("predict", self.predict, (None, *get_args(Predict))),
        ):
            if value not in allowed:
                words = ", ".join(str(one) for one in allowed if one is not None)
                raise ValueError(f"{name}={value!r} must be one of {words}; leave it out if it is not known")
        for name, size in (("n", self.n), ("batch_size", self.batch_size)):
            if size is not None and not (isinstance(size, (int, float)) and 0 < size < math.inf):
                raise ValueError(f"{name}={size!r} must be > 0 and finite; leave it out if it is not known")
        if self.base_sha256 is not None and not re.fullmatch("[0-9a-f]{64}", str(self.base_sha256)):
            raise ValueError(
                f"base_sha256={self.base_sha256!r} must be 64 hexadecimal digits; use varlearn.posterior.weights_sha256"
            )

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


def weights_sha256(weights: Mapping[str, Tensor]) -> str:
    """One checksum of named tensors, whatever files they are in: SHA-256 over names, dtypes, shapes and bytes.

    A finetuned posterior that records it (`Origin.base_sha256`) is refused when it is merged with another base.

    Args:
        weights: by name; their order does not matter.

    >>> import torch
    >>> one = {"b": torch.zeros(2), "a": torch.ones(1)}
    >>> weights_sha256(one) == weights_sha256(dict(reversed(one.items()))), weights_sha256(one)[:8]
    (True, '...')
    """
    digest = hashlib.sha256()
    for name in sorted(weights):
        value = weights[name]
        digest.update(f"{name} {str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}\n".encode())
        digest.update(raw_bytes(value))
    return digest.hexdigest()
