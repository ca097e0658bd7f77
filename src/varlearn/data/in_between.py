"""Regression with a gap: two clusters of inputs and nothing between them (Foong et al., 2019).

y = cos(4 x + 0.8) + 0.1 noise, x uniform in [-1, -0.7] and [0.5, 1]. A model that knows what it does not know is less
sure between the clusters than at them.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from varlearn.data.examples import Examples
from varlearn.data.imageset import check_split
from varlearn.data.seeds import generator

COUNTS = {"train": 100, "test": 200}
CLUSTERS = ((-1.0, -0.7), (0.5, 1.0))
NOISE = 0.1


def in_between(split: str, root: Path | None = None) -> Examples:
    """The data, made here: half of the examples in each cluster. Inputs and targets are in their own units.

    Args:
        split: train or test.
        root: not used.

    >>> in_between("train").inputs.shape
    torch.Size([100, 1])
    """
    check_split(split, COUNTS)
    source = generator(0, "in-between", split)
    half = COUNTS[split] // 2
    parts = [low + (high - low) * torch.rand(half, 1, generator=source) for low, high in CLUSTERS]
    inputs = torch.cat(parts)
    targets = curve(inputs[:, 0]) + NOISE * torch.randn(len(inputs), generator=source)
    return Examples(inputs, targets, (), "table")


def curve(inputs: Tensor) -> Tensor:
    """The function behind the data.

    >>> curve(torch.tensor([-0.2])).item()
    1.0
    """
    return torch.cos(4.0 * inputs + 0.8)
