"""The multilayer perceptron of the approximate inference competition (Wilson et al., 2022)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import nn


def mlp(inputs: int, outputs: int = 2, hidden: Sequence[int] = (50,)) -> nn.Sequential:
    """Build a perceptron with ReLUs; the defaults are the competition's, for UCI regression.

    There the two outputs are the mean of y and its standard deviation before a softplus, which the loss applies.

    Args:
        inputs: numbers per example; dimensions after the first are flattened.
        outputs: numbers per prediction.
        hidden: widths of the hidden layers; empty for a linear model.

    13 * 50 + 50 + 50 * 2 + 2 parameters:

    >>> sum(p.numel() for p in mlp(13).parameters())
    802
    """
    layers: list[nn.Module] = [nn.Flatten()]
    for before, after in pairwise((inputs, *hidden)):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear((inputs, *hidden)[-1], outputs))
