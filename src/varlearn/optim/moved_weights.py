"""Weights that are moved for a second backward pass, and put back bit for bit."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


class MovedWeights:
    """Keeps copies of weights while they are elsewhere.

    >>> weight = torch.ones(2)
    >>> moved = MovedWeights()
    >>> moved.move([(weight, torch.tensor([1.0, 2.0]))])
    >>> weight
    tensor([2., 3.])
    >>> moved.put_back()
    >>> weight
    tensor([1., 1.])
    """

    def __init__(self) -> None:
        self._kept: list[tuple[Tensor, Tensor]] = []

    @property
    def are_moved(self) -> bool:
        """Whether weights are elsewhere now."""
        return bool(self._kept)

    @torch.no_grad()
    def move(self, by: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Add to each weight. If this is interrupted, `put_back` restores what was changed."""
        torch.clear_autocast_cache()  # autocast keeps casts of the weights, and would not see them change
        for weight, change in by:
            self._kept.append((weight, weight.detach().clone()))
            weight.add_(change)

    @torch.no_grad()
    def put_back(self) -> None:
        """Restore the weights. It does nothing if they are in place, and may be called again if interrupted."""
        if self._kept:
            torch.clear_autocast_cache()
        while self._kept:
            weight, copy = self._kept[-1]
            weight.copy_(copy)
            self._kept.pop()
