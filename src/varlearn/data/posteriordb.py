"""Regressions of posteriordb: data, and draws of their posteriors by NUTS.

Prepared form alone: `hmc/posteriordb/NAME.npz`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from varlearn.data import prepared, sources

NAMES = ("sblrc-blr", "sblri-blr", "kidiq-kidscore_interaction", "nes2000-nes")


class ReferenceRegression(NamedTuple):
    """A regression y = X beta + sigma noise whose posterior is known by draws."""

    inputs: Tensor
    """X, shape (N, D), float64."""
    targets: Tensor
    """y, shape (N,)."""
    draws: Tensor
    """Of beta and, last, sigma; shape (S, D + 1)."""


def reference_regression(name: str, root: Path | None = None) -> ReferenceRegression:
    """A regression and its draws.

    Args:
        name: one of `NAMES`.
        root: where the data are; None for the usual places.

    Raises:
        MissingDataError: if the file is not there.
    """
    if name not in NAMES:
        raise ValueError(f"name={name!r} is not a regression of the pack; choose one of {', '.join(NAMES)}")
    place = f"hmc/posteriordb/{name}.npz"
    path = sources.find(place, root)
    if path is None:
        raise sources.missing(place, root, "set VARLEARN_DATA to a folder that holds it")
    content = prepared.arrays(path)
    data = json.loads(str(content["data_json"]))
    draws = torch.from_numpy(content["draws"]).double().flatten(0, 1)

    def column(key: str) -> Tensor:
        return torch.tensor(data[key], dtype=torch.float64)

    if name.startswith("sblr"):
        return ReferenceRegression(column("X"), column("y"), draws)
    if name == "kidiq-kidscore_interaction":
        school, iq = column("mom_hs"), column("mom_iq")
        inputs = torch.stack([torch.ones_like(iq), school, iq, school * iq], 1)
        return ReferenceRegression(inputs, column("kid_score"), draws)
    age = column("age_discrete")
    columns = [torch.ones_like(age), column("real_ideo"), column("race_adj")]
    columns += [(age == group).double() for group in (2, 3, 4)]
    inputs = torch.stack([*columns, column("educ1"), column("gender"), column("income")], 1)
    return ReferenceRegression(inputs, column("partyid7"), draws)
